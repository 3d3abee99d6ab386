//! Every kind, at random: one object, written in both syntaxes and read back from its canonical text, is one object.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::support::{text, tree};
use crate::{
    canonical,
    fleet::{Loaded, load},
    object::{Kind, ObjectRef},
};

/// What the generated objects speak of.
const KEYS: &str = r#"{"keys": [{"kty": "RSA"}]}"#;
const AROUND: &str = r#"
fleet "t" { format 1; trust-domain "t.example"; rollout "now" }
rollout "now" { immediate }
site "s"
profile "below" { sysctl { vm.swappiness 1 }; unit "below.service" enable=#true }
pool "p" site="s" profile="below"
tenant "t"
image "i" url="https://images.example/i" digest="sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" arch="amd64"
node "n" pool="p" { labels rack="r1" row="a" }
"#;

/// One object of a document, as KDL: a generic writer that knows nothing of kinds.
fn kdl(kind: Kind, name: &str, document: &Value) -> String {
    fn scalar(value: &Value) -> String {
        match value {
            Value::Bool(flag) => format!("#{flag}"),
            Value::String(text) => super::syntaxes::quoted_kdl(text),
            other => other.to_string(),
        }
    }
    fn write(key: &str, value: &Value, out: &mut String) {
        let key = super::syntaxes::quoted_kdl(key);
        match value {
            Value::Object(members) => block(&key, members, out),
            Value::Array(items) if items.iter().any(Value::is_object) => {
                items.iter().filter_map(Value::as_object).for_each(|members| block(&key, members, out));
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(scalar).collect();
                *out += &format!("{key} {}\n", items.join(" "));
            }
            value => *out += &format!("{key} {}\n", scalar(value)),
        }
    }
    fn block(head: &str, members: &Map<String, Value>, out: &mut String) {
        *out += &format!("{head} {{\n");
        members.iter().for_each(|(key, value)| write(key, value, out));
        *out += "}\n";
    }
    let mut out = String::new();
    block(&format!("{kind} \"{name}\""), document.as_object().expect("a document"), &mut out);
    out
}

fn yaml(kind: Kind, name: &str, document: &Value) -> String {
    let mut document = document.clone();
    document["kind"] = kind.as_str().into();
    document["name"] = name.into();
    document.to_string()
}

/// Some of these members, each there or not.
fn some(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let members: Vec<_> = members.into_iter().map(|(key, value)| (Just(key), prop::option::of(value))).collect();
    members
        .prop_map(|members| members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
        .boxed()
}

/// These members, and some of those.
fn with(always: Value, members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    some(members)
        .prop_map(move |mut document| {
            let all = document.as_object_mut().expect("members");
            all.extend(always.as_object().expect("members").clone());
            document
        })
        .boxed()
}

fn line() -> BoxedStrategy<Value> {
    "[ -~é€]{1,30}".prop_map(Value::from).boxed()
}

fn number(range: std::ops::Range<u32>) -> BoxedStrategy<Value> {
    range.prop_map(Value::from).boxed()
}

fn any_of(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::select(words).prop_map(Value::from).boxed()
}

fn several(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::subsequence(words, 1..=words.len()).prop_map(Value::from).boxed()
}

fn flag() -> BoxedStrategy<Value> {
    any::<bool>().prop_map(Value::from).boxed()
}

fn table(keys: &'static str, values: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop::collection::btree_map(keys, values, 1..4).prop_map(|table| Value::Object(table.into_iter().collect())).boxed()
}

fn labels() -> BoxedStrategy<Value> {
    table("[a-zA-Z0-9./_-]{1,10}", line())
}

fn size() -> BoxedStrategy<Value> {
    (1_u32..2000, prop::sample::select(&["MiB", "GiB", "TiB"]))
        .prop_map(|(n, unit)| json!(format!("{n}{unit}")))
        .boxed()
}

fn duration() -> BoxedStrategy<Value> {
    (1_u32..500, prop::sample::select(&["s", "m", "h"])).prop_map(|(n, unit)| json!(format!("{n}{unit}"))).boxed()
}

fn time(year: u32) -> BoxedStrategy<Value> {
    (1_u32..13, 1_u32..29, 0_u32..24)
        .prop_map(move |(month, day, hour)| json!(format!("{year}-{month:02}-{day:02}T{hour:02}:30:00Z")))
        .boxed()
}

fn hold() -> BoxedStrategy<Value> {
    with(json!({"reason": "because", "owner": "ops"}), vec![("until", time(2027))])
}

fn protect() -> (&'static str, BoxedStrategy<Value>) {
    ("protect", line())
}

fn window() -> Vec<(&'static str, BoxedStrategy<Value>)> {
    let zones = any_of(&["Europe/Berlin", "UTC", "America/New_York"]);
    let hours = prop::sample::select(&[("22:00", "06:00"), ("09:00", "17:30"), ("00:00", "24:00")]);
    let hours = hours.prop_map(|(from, until)| json!([from, until])).boxed();
    vec![("days", several(&["mon", "wed", "sat", "sun"])), ("hours", hours), ("zone", zones)]
}

/// A window without a zone is none, and a zone without hours or days asks for one.
fn whole(mut document: Value) -> Value {
    let members = document.as_object_mut().expect("members");
    members.entry("zone").or_insert_with(|| "UTC".into());
    if !members.contains_key("hours") {
        members.entry("days").or_insert_with(|| json!(["sun"]));
    }
    document
}

fn freeze() -> BoxedStrategy<Value> {
    let mut members = window();
    members.push(("from", time(2026)));
    members.push(("until", time(2027)));
    with(json!({"reason": "because", "owner": "ops", "zone": "UTC"}), members).prop_map(whole).boxed()
}

fn document(kind: Kind) -> BoxedStrategy<Value> {
    let digest = json!("sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    match kind {
        Kind::Fleet => with(
            json!({"format": 1, "trust-domain": "t.example"}),
            vec![
                ("admission", any_of(&["token", "strict"])),
                (
                    "prune",
                    with(
                        json!({"max-objects": 9}),
                        vec![("max-objects", number(0..9)), ("max-nodes-percent", any_of(&["5%", "100%"]))],
                    ),
                ),
                ("apply", with(json!({"bind": "live"}), vec![("bind", any_of(&["live", "drain", "reboot", "wipe"]))])),
                ("suspend", hold()),
                ("freeze", table("[a-z]{1,8}", freeze())),
                ("rollout", any_of(&["now"])),
                ("ignore", several(&["docs", "**/*.yml"])),
            ],
        ),
        Kind::Site => {
            let network = with(
                json!({"cidr": "10.0.0.0/8"}),
                vec![("router", any_of(&["10.0.0.1"])), ("vlan", number(1..4095)), ("mtu", number(576..9001))],
            );
            some(vec![
                ("region", line()),
                ("labels", labels()),
                ("gateway", several(&["gw1.s.example:7443", "[fd00::1]:7443"])),
                ("network", table("[a-b]{1,8}", network)),
                ("suspend", hold()),
                protect(),
            ])
        }
        Kind::Pool => with(
            json!({"site": "s", "profile": "below"}),
            vec![
                ("class", any_of(&["metal-host", "vps-host"])),
                ("rollout", any_of(&["now"])),
                ("labels", labels()),
                (
                    "hardware",
                    some(vec![
                        ("gpus", with(json!({"count": 8}), vec![("model", line()), ("memory", size())])),
                        ("cpu", some(vec![("model", line()), ("sockets", number(1..9)), ("cores", number(1..200))])),
                        ("memory", size()),
                    ]),
                ),
                (
                    "attest",
                    with(
                        json!({"tpm": {"only": ["sha256:*"]}}),
                        vec![("gcp", with(json!({"only": ["acme-gpu/*"], "keys": KEYS}), vec![("required", flag())]))],
                    ),
                ),
                (
                    "policy",
                    some(vec![
                        ("disruption-budget", any_of(&["5%", "10%"])),
                        ("placement", any_of(&["pack", "spread"])),
                        ("gpu-sharing", any_of(&["none", "timeslice"])),
                        ("host-reserve", some(vec![("cores", number(0..9)), ("memory", size())])),
                        ("lost-after", duration()),
                        (
                            "acceptance",
                            with(
                                json!({"diag.nvml": {}}),
                                vec![("diag.dcgm", some(vec![("level", number(1..5)), ("timeout", duration())]))],
                            ),
                        ),
                        ("tenants", several(&["t"])),
                    ]),
                ),
                ("suspend", hold()),
                protect(),
            ],
        ),
        Kind::Profile => with(
            json!({"extends": "below"}),
            vec![
                ("sysctl", table("net\\.[a-z]{1,8}", line())),
                (
                    "kernel",
                    some(vec![
                        ("args", several(&["iommu=pt", "console=tty0"])),
                        ("module", table("[a-z]{1,5}", some(vec![("options", line()), ("blacklist", flag())]))),
                    ]),
                ),
                ("hugepages", table("2MiB|1GiB", number(0..5000))),
                (
                    "file",
                    table(
                        "/etc/[a-m]{1,8}",
                        with(
                            json!({"mode": "0600"}),
                            vec![
                                ("owner", any_of(&["root", "1000"])),
                                ("restart", several(&["a.service", "b.service"])),
                            ],
                        )
                        .prop_flat_map(|file| {
                            "[ -~\\n\\t€]{0,40}".prop_map(move |content| {
                                let mut file = file.clone();
                                file["content"] = content.into();
                                file
                            })
                        })
                        .boxed(),
                    ),
                ),
                (
                    "unit",
                    table(
                        "[a-f]{1,5}\\.service",
                        some(vec![("enable", flag()), ("state", any_of(&["started", "stopped"])), ("drain", flag())]),
                    ),
                ),
                ("package", table("[a-z]{2,8}", any_of(&["570.*", "1:2.3-4"]))),
                (
                    "drift",
                    some(vec![
                        ("warn", several(&["files./etc/motd", "sysctl.*"])),
                        ("adopt", several(&["packages.nvidia", "units.a.service"])),
                    ]),
                ),
                ("without", some(vec![("sysctl", several(&["vm.swappiness"])), ("unit", several(&["below.service"]))])),
                ("image", any_of(&["i"])),
                ("daemon", table("[a-q]{1,6}", prop_oneof![line(), flag(), number(0..9)].boxed())),
                protect(),
            ],
        ),
        Kind::Image => with(
            json!({"url": "https://images.example/x", "digest": digest, "arch": "amd64"}),
            vec![
                ("size", size()),
                ("signed-by", several(&["a@x", "b@x"])),
                ("use", several(&["os", "ramdisk"])),
                protect(),
            ],
        ),
        Kind::Release => {
            let artifact = with(json!({"url": "https://x.example/bcd", "digest": digest}), vec![("size", size())]);
            artifact
                .prop_map(|artifact| json!({"version": "0.2.0", "artifact": {"arm64": artifact}, "signature": "https://x.example/sig"}))
                .boxed()
        }
        Kind::Rollout => with(
            json!({"wave": [{"nodes": 1, "soak": "30m"}, {"selector": {"rack": "r1"}}, {"percent": "100%"}]}),
            vec![
                ("max-unavailable", any_of(&["5%", "50%"])),
                ("spread", any_of(&["rack"])),
                ("gate", several(&["healthy", "approval"])),
                ("window", with(json!({"zone": "Asia/Tokyo"}), window()).prop_map(whole).boxed()),
                ("on-failure", any_of(&["pause", "rollback"])),
            ],
        ),
        Kind::Node => some(vec![
            ("pool", any_of(&["p"])),
            ("profile", any_of(&["below"])),
            ("labels", labels()),
            ("serial", line()),
            ("board-serial", line()),
            ("attested", several(&["aws:123456789012/i-0abc", "gcp:acme-gpu/4815162342"])),
            ("mac", several(&["3c:ec:ef:00:00:01", "3c:ec:ef:00:00:02"])),
            ("cordon", hold()),
            ("pin", hold()),
            ("suspend", hold()),
            ("taint", table("[a-d]{1,8}", some(vec![("value", line()), ("reason", line())]))),
            protect(),
        ]),
        Kind::Tenant => some(vec![("weight", number(1..1001)), ("contact", line()), ("labels", labels()), protect()]),
        Kind::Quota => with(
            json!({"tenant": "t", "gpus": 8}),
            vec![
                ("pool", any_of(&["p"])),
                ("gpu-model", line()),
                ("cores", number(0..999)),
                ("memory", size()),
                ("reservations", number(0..99)),
                ("max-length", duration()),
            ],
        ),
        Kind::Access => prop_oneof![
            with(json!({"token": ["ci"], "policy": ["access/ops.cedar"]}), Vec::new()),
            with(
                json!({"issuer": "https://id.example", "policy": ["access/ops.cedar"], "claims": {"group": "ops"}}),
                vec![("audience", line())]
            ),
        ]
        .boxed(),
        Kind::Batch => with(
            json!({"command": "node.reboot", "reason": "because", "expires": "2027-12-01T00:00:00Z"}),
            vec![
                ("payload", with(json!({}), vec![("reason", line())])),
                ("proposer", any_of(&["health"])),
                ("not-before", time(2026)),
                ("max-in-flight", number(1..50)),
                ("max-failures", number(0..50)),
                ("spread", any_of(&["rack"])),
            ],
        )
        .prop_flat_map(|document| {
            let members = vec![
                ("pools", several(&["p"])),
                ("sites", several(&["s"])),
                ("selector", with(json!({"rack": "r1"}), vec![("row", any_of(&["a"]))])),
            ];
            with(json!({"nodes": ["n", "p-0a1b2c3d"]}), members).prop_map(move |scope| {
                let mut document = document.clone();
                document["scope"] = scope;
                document
            })
        })
        .boxed(),
        Kind::Freeze => freeze()
            .prop_map(|mut document| {
                document["scope"] = json!(["pool/p", "site/s", "node/n"]);
                document
            })
            .boxed(),
        Kind::Moved | Kind::Removed => unreachable!("these are lines, not objects"),
    }
}

fn read(path: &str, kind: Kind, document: &str) -> Loaded {
    let cedar = ("access/ops.cedar", "permit(principal, action, resource);");
    if kind == Kind::Fleet {
        let around = AROUND.replace("fleet \"t\" { format 1; trust-domain \"t.example\"; rollout \"now\" }", "");
        let root = if path.ends_with("kdl") { "fleet.kdl" } else { "fleet.yaml" };
        return load(&tree(&[(root, document), ("around.kdl", &around), cedar]));
    }
    load(&tree(&[("fleet.kdl", AROUND), (path, document), cedar]))
}

/// The canonical text of the object that a tree has of it.
fn canonical_text(loaded: Loaded, object: &ObjectRef) -> Result<String, String> {
    let shown = text(&loaded);
    let fleet = loaded.fleet.ok_or(shown)?;
    let entry = fleet.objects().find(|entry| entry.object == *object).ok_or("the object is missing")?;
    String::from_utf8(canonical::to_vec(&entry.doc).map_err(|error| error.to_string())?)
        .map_err(|error| error.to_string())
}

#[test]
fn lines_about_objects_are_the_same_in_both_syntaxes() {
    let of = |path: &str, text: &str| {
        let loaded = load(&tree(&[("fleet.kdl", AROUND), (path, text)]));
        let shown = super::support::text(&loaded);
        let fleet = loaded.fleet.unwrap_or_else(|| panic!("{shown}"));
        let moved: Vec<_> = fleet.moved.iter().map(|moved| format!("{} to {}", moved.from, moved.to)).collect();
        let removed: Vec<_> = fleet.removed.iter().map(|gone| format!("{} {}", gone.name, gone.reason.value)).collect();
        (moved, removed)
    };
    let kdl = of(
        "x.kdl",
        "moved from=\"pool/o\" to=\"pool/p\"\nmoved { from \"node/m\"; to \"node/n\" }\nremoved \"site/old\" reason=\"y\"\n",
    );
    let yaml = of(
        "x.yaml",
        "kind: moved\nfrom: pool/o\nto: pool/p\n---\nkind: moved\nfrom: node/m\nto: node/n\n---\nkind: removed\nname: site/old\nreason: y\n",
    );
    assert_eq!(kdl, yaml);
    assert_eq!(kdl.0, ["pool/o to pool/p", "node/m to node/n"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 260, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_object_of_any_kind_is_the_same_in_both_syntaxes_and_in_its_canonical_text(
        (kind, document) in prop::sample::select(&Kind::ALL[..Kind::ALL.len() - 2]).prop_flat_map(|kind| (Just(kind), document(kind)))
    ) {
        let object = ObjectRef::new(kind, "x".parse().expect("a name"));
        let (kdl, yaml) = (kdl(kind, "x", &document), yaml(kind, "x", &document));
        let from_kdl = canonical_text(read("x.kdl", kind, &kdl), &object);
        let from_yaml = canonical_text(read("x.yaml", kind, &yaml), &object);
        prop_assert!(from_kdl.is_ok(), "{}\n{}", kdl, from_kdl.unwrap_err());
        prop_assert_eq!(&from_kdl, &from_yaml, "{}\n{}", kdl, yaml);
        let again = canonical_text(read("x.yaml", kind, &from_yaml.clone().expect("checked")), &object);
        prop_assert_eq!(again, from_yaml);
    }
}
