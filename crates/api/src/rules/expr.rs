//! Expressions of the rules: evaluated here on JSON, and printed as CEL for a cluster.
//!
//! Evaluation has the semantics of CEL. An absent field is an error, which ends a rule as a fault does; `&&` and `||` ignore an
//! error on one side if the other side decides.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::{Add, BitAnd, BitOr, Not};
use std::sync::{LazyLock, Mutex};

use regex::Regex;
use serde_json::Value;

/// An expression.
#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Variable(&'static str),
    Text(String),
    Number(i64),
    Field(Box<Expr>, &'static str),
    Has(Box<Expr>, &'static str),
    /// The value of a map at a key.
    Entry(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Both(Box<Expr>, Box<Expr>),
    Either(Box<Expr>, Box<Expr>),
    Choose(Box<Expr>, Box<Expr>, Box<Expr>),
    Equal(Box<Expr>, Box<Expr>),
    AtMost(Box<Expr>, Box<Expr>),
    OneOf(Box<Expr>, Vec<String>),
    /// The concatenation of two texts.
    Join(Box<Expr>, Box<Expr>),
    Matches(Box<Expr>, Regex),
    StartsWith(Box<Expr>, Box<Expr>),
    EndsWith(Box<Expr>, Box<Expr>),
    Call(Function, Box<Expr>),
    /// A test that all or one of the items of a list, or keys of a map, satisfy the body for the variable.
    Items(Quantity, Box<Expr>, &'static str, Box<Expr>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Function {
    /// The number of characters of a text, or of items of a list.
    Size,
    /// The number of octets of a text.
    Octets,
    Lower,
    IsText,
    /// The parts of a text between commas.
    Split(char),
    /// A part of a text between separators, by its index.
    Part(char, usize),
    /// The text with one character replaced by another.
    Replace(char, char),
    IsIp,
    IsUnspecified,
    /// Whether an IPv6 address has a meaning only on one machine or link.
    IsLocalIpv6,
    /// Whether an address is one of a host: neither multicast nor broadcast, nor local to a link for IPv6.
    IsHostIp,
    /// The address itself, which compares by value.
    Ip,
}

/// The number of items that must satisfy a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    All,
    Some,
    One,
    AtMostOne,
}

/// Returns the value that the rule is at.
pub(crate) fn this() -> Expr {
    Expr::Variable("self")
}

/// Returns the same value before an update.
pub(crate) fn old() -> Expr {
    Expr::Variable("oldSelf")
}

/// Returns the item of a list.
pub(crate) fn item(name: &'static str) -> Expr {
    Expr::Variable(name)
}

impl Expr {
    pub(crate) fn field(self, name: &'static str) -> Expr {
        Expr::Field(self.into(), name)
    }

    pub(crate) fn has(self, name: &'static str) -> Expr {
        Expr::Has(self.into(), name)
    }

    pub(crate) fn entry(self, key: Expr) -> Expr {
        Expr::Entry(self.into(), key.into())
    }

    /// Returns a field that is a text, in which empty and absent mean the same.
    pub(crate) fn text(self, name: &'static str) -> Expr {
        self.clone().has(name).choose(self.field(name), "")
    }

    /// Returns a test that an optional field exists and is not empty.
    pub(crate) fn names(self, name: &'static str) -> Expr {
        self.clone().has(name) & !self.field(name).is("")
    }

    pub(crate) fn is(self, other: impl Into<Expr>) -> Expr {
        Expr::Equal(self.into(), Box::new(other.into()))
    }

    pub(crate) fn at_most(self, other: impl Into<Expr>) -> Expr {
        Expr::AtMost(self.into(), Box::new(other.into()))
    }

    pub(crate) fn one_of<T: AsRef<str>>(self, texts: &[T]) -> Expr {
        Expr::OneOf(self.into(), texts.iter().map(|text| text.as_ref().to_owned()).collect())
    }

    /// Returns a test that a part of the text matches.
    pub(crate) fn matches(self, pattern: &str) -> Expr {
        // The rules have some thirty patterns; compiling one takes as long as a hundred searches.
        static COMPILED: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
        let mut compiled = COMPILED.lock().expect("nothing panics under it but a wrong pattern");
        let compile = || Regex::new(pattern).expect("the pattern of a rule");
        Expr::Matches(self.into(), compiled.entry(pattern.to_owned()).or_insert_with(compile).clone())
    }

    pub(crate) fn starts_with(self, start: impl Into<Expr>) -> Expr {
        Expr::StartsWith(self.into(), Box::new(start.into()))
    }

    pub(crate) fn ends_with(self, end: impl Into<Expr>) -> Expr {
        Expr::EndsWith(self.into(), Box::new(end.into()))
    }

    pub(crate) fn call(self, function: Function) -> Expr {
        Expr::Call(function, self.into())
    }

    pub(crate) fn items(self, quantity: Quantity, name: &'static str, body: Expr) -> Expr {
        Expr::Items(quantity, self.into(), name, body.into())
    }

    pub(crate) fn choose(self, one: impl Into<Expr>, other: impl Into<Expr>) -> Expr {
        Expr::Choose(self.into(), Box::new(one.into()), Box::new(other.into()))
    }

    /// Returns whether it holds for a scope; `None` is an error.
    pub(crate) fn holds<'a>(&'a self, scope: &Scope<'a, '_>) -> Option<bool> {
        match self.eval(scope)? {
            Val::Bool(holds) => Some(holds),
            _ => None,
        }
    }

    fn eval<'a>(&'a self, scope: &Scope<'a, '_>) -> Option<Val<'a>> {
        let text = |of: &'a Expr| of.eval(scope)?.text();
        Some(match self {
            Expr::Variable(name) => scope.find(name)?,
            Expr::Text(text) => Val::Text(text.as_str().into()),
            Expr::Number(number) => Val::Number(*number),
            Expr::Field(of, name) => Val::of(of.eval(scope)?.json()?.get(name)?),
            Expr::Has(of, name) => Val::Bool(of.eval(scope)?.json()?.get(name).is_some()),
            Expr::Entry(of, key) => Val::of(of.eval(scope)?.json()?.get(&*text(key)?)?),
            Expr::Not(of) => Val::Bool(!of.holds(scope)?),
            Expr::Both(one, other) => Val::Bool(!decided(one, other, scope, false)?),
            Expr::Either(one, other) => Val::Bool(decided(one, other, scope, true)?),
            Expr::Choose(condition, one, other) => {
                let chosen = if condition.holds(scope)? { one } else { other };
                chosen.eval(scope)?
            }
            Expr::Equal(one, other) => Val::Bool(one.eval(scope)? == other.eval(scope)?),
            Expr::AtMost(one, other) => Val::Bool(match (one.eval(scope)?, other.eval(scope)?) {
                (Val::Number(one), Val::Number(other)) => one <= other,
                (one, other) => one.text()? <= other.text()?,
            }),
            Expr::OneOf(of, texts) => {
                let found = text(of)?;
                Val::Bool(texts.iter().any(|text| *text == found))
            }
            Expr::Join(one, other) => Val::Text(format!("{}{}", text(one)?, text(other)?).into()),
            Expr::Matches(of, pattern) => Val::Bool(pattern.is_match(&text(of)?)),
            Expr::StartsWith(of, start) => Val::Bool(text(of)?.starts_with(&*text(start)?)),
            Expr::EndsWith(of, end) => Val::Bool(text(of)?.ends_with(&*text(end)?)),
            Expr::Call(function, of) => function.eval(of.eval(scope)?)?,
            Expr::Items(quantity, list, name, body) => {
                let items: Vec<Val<'a>> = match list.eval(scope)? {
                    Val::Texts(texts) => texts.into_iter().map(Val::Text).collect(),
                    Val::Json(Value::Array(items)) => items.iter().map(Val::of).collect(),
                    Val::Json(Value::Object(members)) => {
                        members.keys().map(|key| Val::Text(key.as_str().into())).collect()
                    }
                    _ => return None,
                };
                let verdicts = items.into_iter().map(|value| body.holds(&Scope { name, value, outer: Some(scope) }));
                quantity.of(verdicts).map(Val::Bool)?
            }
        })
    }

    /// Returns the expression in CEL.
    pub(crate) fn cel(&self) -> String {
        match self {
            Expr::Variable(name) => (*name).to_owned(),
            Expr::Text(text) => quoted(text),
            Expr::Number(number) => number.to_string(),
            Expr::Field(of, name) => format!("{}.{}", of.operand(6), escaped(name)),
            Expr::Has(of, name) => format!("has({}.{})", of.operand(6), escaped(name)),
            Expr::Entry(of, key) => format!("{}[{}]", of.operand(6), key.cel()),
            Expr::Not(of) => match &**of {
                Expr::Equal(one, other) => format!("{} != {}", one.operand(4), other.operand(4)),
                of => format!("!{}", of.operand(6)),
            },
            Expr::Both(one, other) => format!("{} && {}", one.operand(2), other.operand(2)),
            Expr::Either(one, other) => format!("{} || {}", one.operand(1), other.operand(1)),
            Expr::Choose(condition, one, other) => {
                format!("{} ? {} : {}", condition.operand(1), one.operand(1), other.operand(1))
            }
            Expr::Equal(one, other) => format!("{} == {}", one.operand(4), other.operand(4)),
            Expr::AtMost(one, other) => format!("{} <= {}", one.operand(4), other.operand(4)),
            Expr::OneOf(of, texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                format!("{} in [{}]", of.operand(4), texts.join(", "))
            }
            Expr::Join(one, other) => format!("{} + {}", one.operand(4), other.operand(5)),
            Expr::Matches(of, pattern) => format!("{}.matches(r'{pattern}')", of.operand(6)),
            Expr::StartsWith(of, start) => format!("{}.startsWith({})", of.operand(6), start.cel()),
            Expr::EndsWith(of, end) => format!("{}.endsWith({})", of.operand(6), end.cel()),
            Expr::Call(function, of) => function.cel(of),
            Expr::Items(quantity, list, name, body) => {
                let (list, body) = (list.operand(6), body.cel());
                match quantity {
                    Quantity::All => format!("{list}.all({name}, {body})"),
                    Quantity::Some => format!("{list}.exists({name}, {body})"),
                    Quantity::One => format!("{list}.exists_one({name}, {body})"),
                    Quantity::AtMostOne => format!("size({list}.filter({name}, {body})) <= 1"),
                }
            }
        }
    }

    /// Returns the expression as an operand of an operator with the precedence `level`.
    fn operand(&self, level: u8) -> String {
        let own = match self {
            Expr::Choose(..) => 0,
            Expr::Either(..) => 1,
            Expr::Both(..) => 2,
            Expr::Equal(..) | Expr::AtMost(..) | Expr::OneOf(..) | Expr::Items(Quantity::AtMostOne, ..) => 3,
            Expr::Call(Function::IsText | Function::IsLocalIpv6 | Function::IsHostIp, _) => 2,
            Expr::Not(of) if matches!(**of, Expr::Equal(..)) => 3,
            Expr::Join(..) => 4,
            Expr::Not(..) => 5,
            _ => 6,
        };
        if own < level { format!("({})", self.cel()) } else { self.cel() }
    }
}

/// Returns whether one side is `wanted`; an error unless the other side decides.
fn decided<'a>(one: &'a Expr, other: &'a Expr, scope: &Scope<'a, '_>, wanted: bool) -> Option<bool> {
    let first = one.holds(scope);
    if first == Some(wanted) {
        return Some(true);
    }
    match (first, other.holds(scope)) {
        (_, Some(second)) if second == wanted => Some(true),
        (Some(_), Some(_)) => Some(false),
        _ => None,
    }
}

impl Quantity {
    fn of(self, mut verdicts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
        if let Quantity::One | Quantity::AtMostOne = self {
            let found = verdicts.map(|verdict| verdict.map(usize::from)).sum::<Option<usize>>()?;
            return Some(if self == Quantity::One { found == 1 } else { found <= 1 });
        }
        let decisive = self == Quantity::Some;
        let mut failed = false;
        let found = verdicts.any(|verdict| {
            failed |= verdict.is_none();
            verdict == Some(decisive)
        });
        match found {
            true => Some(decisive),
            false => (!failed).then_some(!decisive),
        }
    }
}

impl Function {
    fn eval(self, value: Val<'_>) -> Option<Val<'_>> {
        let ip = |value: Val<'_>| value.text().and_then(|text| parse_ip(&text));
        Some(match self {
            Function::Size => Val::Number(
                i64::try_from(match &value {
                    Val::Json(Value::Array(items)) => items.len(),
                    _ => value.text()?.chars().count(),
                })
                .ok()?,
            ),
            Function::Octets => Val::Number(i64::try_from(value.text()?.len()).ok()?),
            Function::Lower => Val::Text(value.text()?.to_ascii_lowercase().into()),
            Function::IsText => Val::Bool(matches!(value, Val::Text(_))),
            Function::Split(separator) => {
                Val::Texts(value.text()?.split(separator).map(|part| part.to_owned().into()).collect())
            }
            Function::Part(separator, index) => Val::Text(value.text()?.split(separator).nth(index)?.to_owned().into()),
            Function::Replace(one, other) => Val::Text(value.text()?.replace(one, &other.to_string()).into()),
            Function::IsIp => Val::Bool(ip(value).is_some()),
            Function::IsUnspecified => Val::Bool(ip(value)?.is_unspecified()),
            Function::IsLocalIpv6 => {
                Val::Bool(matches!(ip(value)?, IpAddr::V6(address) if address.is_unicast_link_local()))
            }
            Function::IsHostIp => Val::Bool(match ip(value)? {
                IpAddr::V4(address) => !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast(),
                IpAddr::V6(address) => {
                    !address.is_unspecified() && !address.is_multicast() && !address.is_unicast_link_local()
                }
            }),
            Function::Ip => Val::Text(ip(value)?.to_string().into()),
        })
    }

    fn cel(self, of: &Expr) -> String {
        let (whole, operand) = (of.cel(), of.operand(6));
        match self {
            Function::Size => format!("size({whole})"),
            Function::Octets => format!("size(bytes({whole}))"),
            Function::Lower => format!("{operand}.lowerAscii()"),
            // Only a text equals itself as text.
            Function::IsText => format!("string({whole}) == {operand}"),
            Function::Split(separator) => format!("{operand}.split('{separator}')"),
            Function::Part(separator, index) => format!("{operand}.split('{separator}')[{index}]"),
            Function::Replace(one, other) => format!("{operand}.replace('{one}', '{other}')"),
            Function::IsIp => format!("isIP({whole})"),
            Function::IsUnspecified => format!("ip({whole}).isUnspecified()"),
            Function::IsLocalIpv6 => format!("ip({whole}).family() == 6 && ip({whole}).isLinkLocalUnicast()"),
            Function::IsHostIp => format!(
                "(ip({whole}).isGlobalUnicast() || ip({whole}).isLoopback() || ip({whole}).family() == 4 && \
                 ip({whole}).isLinkLocalUnicast())"
            ),
            Function::Ip => format!("ip({whole})"),
        }
    }
}

/// Returns an address as Kubernetes takes it: not an IPv4 address written as IPv6.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let is_mapped = |ip: &IpAddr| matches!(ip, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    text.parse().ok().filter(|ip| !is_mapped(ip))
}

/// Returns the name of a field in CEL, where some are reserved words.
fn escaped(name: &str) -> Cow<'_, str> {
    if name == "namespace" { "__namespace__".into() } else { name.into() }
}

fn quoted(text: &str) -> String {
    assert!(!text.contains(['\'', '\\']), "the texts of rules need no escapes");
    format!("'{text}'")
}

/// The variables of an expression.
pub(crate) struct Scope<'a, 'p> {
    pub(crate) name: &'static str,
    pub(crate) value: Val<'a>,
    pub(crate) outer: Option<&'p Scope<'a, 'p>>,
}

impl<'a> Scope<'a, '_> {
    fn find(&self, name: &str) -> Option<Val<'a>> {
        match self.name == name {
            true => Some(self.value.clone()),
            false => self.outer?.find(name),
        }
    }
}

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Val<'a> {
    Bool(bool),
    Number(i64),
    Text(Cow<'a, str>),
    Texts(Vec<Cow<'a, str>>),
    /// A list, an object, or a map.
    Json(&'a Value),
}

impl<'a> Val<'a> {
    pub(crate) fn of(value: &'a Value) -> Val<'a> {
        match value {
            Value::Bool(holds) => Val::Bool(*holds),
            Value::String(text) => Val::Text(text.as_str().into()),
            Value::Number(number) => number.as_i64().map_or(Val::Json(value), Val::Number),
            _ => Val::Json(value),
        }
    }

    fn json(&self) -> Option<&'a Value> {
        match self {
            Val::Json(value) => Some(value),
            _ => None,
        }
    }

    fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Val::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<&str> for Expr {
    fn from(text: &str) -> Expr {
        Expr::Text(text.to_owned())
    }
}

impl From<i64> for Expr {
    fn from(number: i64) -> Expr {
        Expr::Number(number)
    }
}

impl BitAnd for Expr {
    type Output = Expr;

    fn bitand(self, other: Expr) -> Expr {
        Expr::Both(self.into(), other.into())
    }
}

impl BitOr for Expr {
    type Output = Expr;

    fn bitor(self, other: Expr) -> Expr {
        Expr::Either(self.into(), other.into())
    }
}

impl Not for Expr {
    type Output = Expr;

    fn not(self) -> Expr {
        Expr::Not(self.into())
    }
}

impl<T: Into<Expr>> Add<T> for Expr {
    type Output = Expr;

    fn add(self, other: T) -> Expr {
        Expr::Join(self.into(), Box::new(other.into()))
    }
}
