// All processes of the platform, as far as this process and the API know them: this process, the leading scheduler, the name
// servers that the platform queries, those that hold deletions, and the instances of Routers.

import { h } from "./dom.js";
import { items, itemsIfThere, model, objectIfThere, path, platform, serialsOf } from "./data.js";
import { now } from "./plot.js";
import { number, table } from "./table.js";
import {
  INSTANCE_KINDS,
  KINDS,
  age,
  badge,
  count,
  empty,
  figure,
  link,
  measured,
  origin,
  plural,
  seconds,
  section,
  time,
} from "./words.js";
import { serverNames, stateOf } from "./zone.js";

export const title = () => "Fleet";
export const moves = true;
export const every = 5000;
export const concerns = (changed) => changed.routers || changed.zones;

/** The namespace of the Leases of instances. */
const AGENTS = "signpost-machines";

export async function load(_, { rights }, signal) {
  const [process, parent, routers, lease, leases, deletionHolds] = await Promise.all([
    model("process", {}, signal),
    platform(signal),
    items(path.routers, signal),
    rights.leases ? objectIfThere(path.lease, signal) : null,
    rights.leases ? items(path.leases(AGENTS), signal).catch(() => []) : [],
    itemsIfThere(path.deletionHolds, signal),
  ]);
  const name = parent?.metadata.name;
  const [serials, served] = parent
    ? await Promise.all([serialsOf(name, parent, signal), model("zones", { q: name, limit: 500 }, signal)])
    : [[], { items: [] }];
  const own = served.items.find(({ zone }) => zone.toLowerCase() === `${name}.`)?.serial ?? null;
  return { process, parent, routers, lease, leases, deletionHolds, serials, own };
}

/** The roles in the lines of /readyz, such as `[+] dns/zones`. */
function rolesOf(checks) {
  const roles = checks.map((line) => line.slice(4).split("/")[0]).filter((role) => role !== "process");
  return [...new Set(roles)];
}

const ageOf = (text) => (text ? Math.max(0, Date.now() - Date.parse(text)) / 1000 : null);

function thisProcess({ process, lease, parent, own }, samples) {
  const leads = now(samples, "signpost_scheduler_leading") > 0;
  const failed = process.checks.filter((line) => !line.startsWith("[+]"));
  return {
    key: "this process",
    name: "this process",
    more: leads ? lease?.spec?.holderIdentity : null,
    roles: rolesOf(process.checks).map((role) => (role === "scheduler" && leads ? "scheduler (leader)" : role)),
    version: process.version,
    state: !process.ready ? ["bad", "not ready"] : failed.length ? ["warn", "ready"] : ["good", "ready"],
    details: failed,
    serial: own,
    serialWord: stateOf(own, parent?.spec.versions?.[0]?.serial)[1],
    zones: now(samples, "signpost_dns_zones"),
    queries: now(samples, "signpost_dns_requests_total"),
    silence: now(samples, "signpost_informer_age_seconds"),
    source: "signpost_informer_age_seconds",
    up: (Date.now() - process.startedMs) / 1000,
  };
}

/** The state of the leader. It is one of the processes in the table, so it has no row. */
function leader({ lease }) {
  const { holderIdentity, renewTime, acquireTime, leaseDurationSeconds, leaseTransitions } = lease.spec;
  const isExpired = ageOf(renewTime) > 2 * (leaseDurationSeconds ?? 15);
  return h(
    "p",
    null,
    isExpired ? badge("bad", "Lease expired") : badge("good", "leads"),
    ` ${holderIdentity} has led for `,
    age(acquireTime),
    ", and renewed its Lease ",
    time(renewTime),
    `. Fencing number ${leaseTransitions ?? 0}.`,
  );
}

/** Whether an address is that of the name server in this process: listed, or on loopback with the port of a wildcard address. */
function isOwn(server, { dns = [] }) {
  const port = server.slice(server.lastIndexOf(":"));
  const isLoopback = server.startsWith("127.") || server.startsWith("[::1]");
  return dns.includes(server) || (isLoopback && [`0.0.0.0${port}`, `[::]${port}`].some((one) => dns.includes(one)));
}

/** The name servers in other processes that the platform queries to verify names. */
function nameServers({ parent, serials, process }) {
  const newest = parent?.spec.versions?.[0]?.serial;
  const names = serverNames(parent, serials);
  return (serials ?? []).filter(({ server }) => !isOwn(server, process)).map(({ server, serial, error, seconds: took }) => {
    const [kind, word] = stateOf(serial, newest, error);
    return {
      key: `name server ${server}`,
      name: names.get(server) ?? "name server",
      more: server,
      roles: ["dns"],
      state: serial === null ? ["bad", "no answer"] : [kind, kind === "bad" ? word : "answers"],
      details: error ? [error] : [`response after ${seconds(took)}`],
      serial,
      serialWord: word,
    };
  });
}

/** The name servers that keep deleted objects, by their reports in DeletionHolds. They are processes in the table as well. */
const holders = ({ deletionHolds }) =>
  deletionHolds.flatMap(({ metadata, status }) =>
    (status?.holders ?? []).map(({ server, host, lastHeartbeatTime }) =>
      h(
        "li",
        { "data-key": `${metadata.name} ${server}` },
        badge("warn", "holds deletions"),
        ` ${server}${host ? ` on ${host}` : ""}, DeletionHold ${metadata.name}, reported `,
        time(lastHeartbeatTime),
      ),
    ),
  );

/** The instances of Routers, as their Leases report them. */
function instances({ routers, leases }) {
  const renewed = new Map(leases.map((lease) => [lease.metadata.name, lease.spec?.renewTime]));
  return routers.flatMap(({ metadata, status }) =>
    (status?.instances ?? []).map((one) => ({
      key: `instance ${one.name}`,
      name: `${one.ip}:${one.httpPort}`,
      more: one.name,
      router: metadata.name,
      roles: [`agent (${one.proxy})`],
      version: one.version,
      state: [one.faults > 0 && one.state === "serving" ? "warn" : (INSTANCE_KINDS[one.state] ?? "note"), one.state],
      details: one.faults > 0 ? [plural(one.faults, "fault")] : [],
      silence: ageOf(renewed.get(one.name)),
      source: "spec.renewTime of the Lease",
    })),
  );
}

const UNKNOWN = "not in the API; see the admin endpoint of the process";
const unknown = () => h("span.dim", { title: UNKNOWN }, "–");
const isUnknown = (value) => value === null || value === undefined;

/** A column of a number that is not known of all processes. */
const known = (column) => ({ ...column, cell: (row) => (isUnknown(column.value(row)) ? unknown() : column.cell(row)) });

const COLUMNS = [
  {
    key: "process",
    label: "Process",
    value: (row) => row.name,
    cell: (row) => [
      h("div", null, row.name, row.router && [" of ", h("a", { href: link.router(row.router) }, row.router)]),
      row.more && h("div.dim.mono", null, row.more),
    ],
  },
  { key: "roles", label: "Roles", value: (row) => row.roles.join(), cell: (row) => row.roles.join(", ") },
  { key: "version", label: "Version", value: (row) => row.version, cell: (row) => row.version ?? unknown() },
  {
    key: "state",
    label: "State",
    value: (row) => `${KINDS.indexOf(row.state[0])} ${row.state[1]}`,
    cell: (row) => [badge(...row.state), row.details?.map((text) => h("div.dim", { "data-key": text }, text))],
  },
  {
    key: "serial",
    label: "Serial",
    title: "Serial of the parent zone",
    value: (row) => row.serial,
    cell: (row) =>
      isUnknown(row.serial) ? unknown() : [figure(String(row.serial), "the serial of the parent zone"), ` ${row.serialWord}`],
  },
  known(number("queries", "Queries/s", measured, () => "signpost_dns_requests_total")),
  known(number("zones", "Zones", count, () => "signpost_dns_zones")),
  {
    ...known(number("silence", "Last message", seconds, (row) => row.source)),
    title: "Time since the last message; up to a minute if nothing changes",
  },
  known(number("up", "Up", seconds, () => "signpost_start_time_seconds")),
];

export function render(data, { query }, { samples }) {
  const rows = [
    thisProcess(data, samples),
    ...nameServers(data),
    ...instances(data),
  ];
  const held = holders(data);
  const { lease, serials } = data;
  return [
    h("div.title", null, h("h1", null, "Fleet"), h("span.dim", null, plural(rows.length, "process", "processes"))),
    table(rows, COLUMNS, { sort: query.sort, fallback: "", keyOf: (row) => row.key }),
    section(
      "Scheduler",
      lease?.spec?.holderIdentity
        ? leader(data)
        : empty("No scheduler leads.", "New Routes stay pending until a process with the role scheduler leads."),
    ),
    held.length > 0 && section("Deletion holds", h("ul", null, held)),
    serials?.length === 0 &&
      h("p.dim", null, "No name servers are listed for verification; set ", h("code", null, "verify.server"), "."),
    h(
      "p.dim",
      null,
      "The API has no list of all processes. A “–” is a value that only the admin endpoint of that process has. For several processes, run:",
    ),
    h("footer", null, origin(path.lease, "signpost status --admin URL --admin URL")),
  ];
}
