#!/usr/bin/env python3
"""A custom scheduling strategy, as a service that Signpost calls (strategy = "webhook").

It keeps Routes in their region: it prefers the feasible Routers whose label `region` equals the label of the Route, or of
its Namespace. Among these, it selects the Router with the fewest Routes for its weight. It has no state, so several
processes can serve one address, and each can restart at any time.

    openssl rand -hex 32 >placer.token
    python3 placer.py --listen 127.0.0.1:8181 --token-file placer.token
    signpost serve --demo --scheduler-strategy webhook --webhook-url http://127.0.0.1:8181/ --webhook-token-file placer.token

The program uses only Python's standard library. docs/scheduling.md describes requests and responses.
"""

import argparse
import hmac
import json
import pathlib
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# A request with 1,000 Routers has about 300 kB.
QUESTION_OCTETS_MAX = 4 * 1024 * 1024


def choose(question):
    """The strategy: a pure function from the request to the response."""
    route, routers = question["route"], question["routers"]
    region = route["labels"].get("region") or route["namespaceLabels"].get("region")

    def load(router):
        # Routes for each unit of weight, including the new one, in thousandths. Scores are integers.
        return (router["routes"] + 1) * 1000 // max(router["weight"], 1)

    def score(router):
        at_home = region is not None and router["labels"].get("region") == region
        return (10**12 if at_home else 0) - load(router)

    # Of equal Routers, the first by name: equal requests get equal responses.
    best = min(routers, key=lambda router: (-score(router), router["name"]))
    if region is None:
        reason = "the route has no region"
    elif best["labels"].get("region") == region:
        reason = f"it is in the region {region}"
    else:
        reason = f"no Router of the region {region} can take the route"
    return {
        "router": best["name"],
        "reason": f"{reason}; {best['routes']} routes at weight {best['weight']}",
        "scores": {router["name"]: score(router) for router in routers},
    }


class Handler(BaseHTTPRequestHandler):
    # Connections stay open between questions.
    protocol_version = "HTTP/1.1"
    # The connection of a silent client ends.
    timeout = 300
    # The file of the token that questions must carry, read for each, so that it can be changed.
    token_file = None

    def is_authorized(self):
        if self.token_file is None:
            return True
        wanted = "Bearer " + self.token_file.read_text().strip()
        return hmac.compare_digest(wanted.encode(), (self.headers.get("authorization") or "").encode())

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        if length > QUESTION_OCTETS_MAX:
            self.close_connection = True
            return self.say(413, {"error": "the question is too long"})
        body = self.rfile.read(length)
        if not self.is_authorized():
            return self.say(401, {"error": "the question does not carry the token"})
        try:
            question = json.loads(body)
            known = question["apiVersion"] == "signpost.dev/v1alpha1" and question["kind"] == "PlacementQuestion"
            if not known:
                return self.say(400, {"error": "this is not a PlacementQuestion of signpost.dev/v1alpha1"})
            answer = choose(question)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # The route's explanation reports that the webhook answered 400, and Signpost uses its fallback.
            return self.say(400, {"error": f"the question cannot be read: {error!r}"})
        self.say(200, answer)

    def do_GET(self):
        """For the monitoring of this service."""
        self.say(200, {"ok": True})

    def say(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if status == 401:
            self.send_header("www-authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """One line a question is too much."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def main():
    parser = argparse.ArgumentParser(description="keeps routes in their region")
    parser.add_argument("--listen", default="127.0.0.1:8181", help="ADDR:PORT; port 0 takes a free one")
    parser.add_argument("--token-file", type=pathlib.Path, help="file of the token that questions must carry")
    parser.add_argument("--certificate", help="certificate chain in PEM, for questions over https")
    parser.add_argument("--key", help="its private key in PEM")
    arguments = parser.parse_args()
    address, _, port = arguments.listen.rpartition(":")
    Handler.token_file = arguments.token_file
    server = Server((address.strip("[]"), int(port)), Handler)
    scheme = "http"
    if arguments.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.certificate, arguments.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https"
    print(f"listening on {scheme}://{address}:{server.server_address[1]}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
