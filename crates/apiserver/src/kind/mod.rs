//! The description of a kind: its names, its schema, and the display and selection of its objects. [`crate::registry`] defines
//! its behavior.

pub mod columns;
pub mod schemas;
pub mod selectable;

pub mod crd;

use std::sync::Arc;

use kube::CustomResourceExt;
use serde_json::Value;

use self::columns::{Column, Columns};
use self::selectable::Selectable;
use crate::schema::{Schema, structural};

/// The description of a kind: its names, its schema, and the display and selection of its objects. A process has one of each, in
/// a `static`.
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind, such as `Lease`.
    pub kind: &'static str,
    /// Lower-case plural, such as `leases`.
    pub plural: &'static str,
    /// The other names of the kind.
    pub aliases: Aliases,
    /// Whether the kind is namespaced.
    pub namespaced: bool,
    /// Whether it has the subresource `status`.
    pub has_status: bool,
    /// The prefix of its keys: the first segment and the plural, such as `/coordination.k8s.io/leases/`. Two views of one kind
    /// (events) share it.
    pub key_prefix: &'static str,
    /// Structural OpenAPI v3 schema of the whole object, with defaults and descriptions.
    pub schema: Arc<Schema>,
    /// The table columns after `Name`. If one of them is itself named `Name` (events, as in Kubernetes), no such column is added
    /// in front.
    pub columns: Columns,
    /// The field selectors in addition to `metadata.name` and `metadata.namespace`, as dotted paths.
    pub selectable_fields: Selectable,
    /// The time to live of objects (events).
    pub time_to_live: Option<std::time::Duration>,
    /// The conversions of a kind that is another view of a stored kind (events).
    pub view: Option<View>,
    /// The form in which hooks read objects of the kind.
    pub hook_reads: HookReads,
    /// Whether it is one of Kubernetes' own rather than a custom resource, whose group can end in `.k8s.io`, too. Those take
    /// strategic merge patches, have no `generation`, and decode protobuf.
    pub is_built_in: bool,
    /// Whether its objects are secret: encrypted at rest ([`crate::store::encrypted`]), and never quoted in the audit log.
    pub is_secret: bool,
    /// The maximum size of an object, instead of that of the server's settings.
    pub object_bytes: Option<usize>,
}

/// The names of a kind that users type.
#[derive(Clone, Copy, Default)]
pub struct Aliases {
    /// Lower-case singular.
    pub singular: &'static str,
    /// Short names.
    pub short_names: &'static [&'static str],
    /// Categories.
    pub categories: &'static [&'static str],
}

/// The form in which [`Reader::get`](crate::registry::Reader::get) reads an object of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HookReads {
    /// The content: all except the field sets, which are more than half of an object.
    #[default]
    Content,
    /// The content, and the decoded tree is cached: hooks read the same few objects repeatedly.
    OftenTheSame,
    /// The whole object, because a hook of another kind changes it ([`SideEffect::Put`](crate::registry::SideEffect::Put)).
    Whole,
}

/// A second representation of objects that are stored as another kind. The rules, the schema, and the selectors of the view refer
/// to the view's representation, the columns to the stored one.
#[derive(Clone, Copy)]
pub struct View {
    /// Converts the stored representation to this one.
    pub from_stored: fn(Value) -> Value,
    /// Converts this representation to the stored one.
    pub to_stored: fn(Value) -> Value,
}

impl Kind {
    /// Returns the kind of a type that derives [`kube::CustomResource`], with one column, the age. Its names live as long as the
    /// process.
    pub fn of<T: CustomResourceExt>() -> Kind {
        let definition = T::crd();
        let names = definition.spec.names;
        let leak = |text: String| -> &'static str { text.leak() };
        let leak_all = |texts: Option<Vec<String>>| -> &'static [&'static str] {
            texts.unwrap_or_default().into_iter().map(leak).collect::<Vec<_>>().leak()
        };
        let version = definition.spec.versions.into_iter().next().expect("kube derives one version");
        Kind {
            key_prefix: leak(format!("/{}/{}/", definition.spec.group, names.plural)),
            group: leak(definition.spec.group),
            version: leak(version.name),
            kind: leak(names.kind),
            plural: leak(names.plural),
            aliases: Aliases {
                singular: leak(names.singular.unwrap_or_default()),
                short_names: leak_all(names.short_names),
                categories: leak_all(names.categories),
            },
            namespaced: definition.spec.scope == "Namespaced",
            has_status: version.subresources.is_some_and(|subresources| subresources.status.is_some()),
            schema: Schema::new(schemas::of_custom::<T>()),
            columns: Columns::new(&[columns::AGE]),
            selectable_fields: Selectable::new(&[]),
            time_to_live: None,
            view: None,
            hook_reads: HookReads::default(),
            is_built_in: false,
            is_secret: false,
            object_bytes: None,
        }
    }

    /// Returns a kind of Kubernetes' own, in namespaces, with one column, the age. Adds these attributes to its schema, each at
    /// its [place](structural::at).
    pub fn built_in<T>(attributes: impl IntoIterator<Item = (&'static str, Value)>) -> Kind
    where
        T: k8s_openapi::Resource + schemars::JsonSchema,
    {
        let mut schema = schemas::of_built_in::<T>();
        for (place, more) in attributes {
            structural::extend(&mut schema, place, more);
        }
        let group = if T::GROUP.is_empty() { "core" } else { T::GROUP };
        let plural = T::URL_PATH_SEGMENT;
        Kind {
            group: T::GROUP,
            version: T::VERSION,
            kind: T::KIND,
            plural,
            aliases: Aliases { singular: T::KIND.to_ascii_lowercase().leak(), ..Aliases::default() },
            namespaced: true,
            has_status: false,
            key_prefix: format!("/{group}/{plural}/").leak(),
            schema: Schema::new(schema),
            columns: Columns::new(&[columns::BUILT_IN_AGE]),
            selectable_fields: Selectable::new(&[]),
            time_to_live: None,
            view: None,
            hook_reads: HookReads::default(),
            is_built_in: true,
            is_secret: false,
            object_bytes: None,
        }
    }

    /// Returns whether this is Namespace, which the server itself deals with.
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.plural == "namespaces"
    }

    /// Returns the kind with these columns.
    pub fn with_columns(self, columns: &'static [Column]) -> Kind {
        Kind { columns: Columns::new(columns), ..self }
    }

    /// Returns the kind with these fields for field selectors.
    pub fn selectable_by(self, fields: &'static [&'static str]) -> Kind {
        Kind { selectable_fields: Selectable::new(fields), ..self }
    }

    /// Returns the kind with this form in which hooks read its objects.
    pub fn read_by_hooks(self, hook_reads: HookReads) -> Kind {
        Kind { hook_reads, ..self }
    }

    /// `apiVersion` of its objects: `coordination.k8s.io/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the value of a field that can be selected by, `""` where it is absent; `None` if `path` cannot be selected by. All
    /// kinds can be selected by `metadata.name` and, in a namespace, `metadata.namespace`.
    pub fn field(&self, object: &Value, path: &str) -> Option<String> {
        let declared = path == "metadata.name"
            || path == "metadata.namespace" && self.namespaced
            || self.selectable_fields.contains(&path);
        if !declared {
            return None;
        }
        let found = selectable::path_of(path).split('.').try_fold(object, |value, segment| value.get(segment));
        Some(match found {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        })
    }
}
