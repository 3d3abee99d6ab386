//! A fleet of any size, as its files: one for each machine, and few of everything else.

use std::fmt::Write as _;

/// Machines of one rack, which is a folder.
const RACK: usize = 40;

const ROOT: &str = "fleet \"bench\" {\n  format 1\n  trust-domain \"bench.example\"\n  admission \"strict\"\n  rollout \"now\"\n  prune max-objects=10 max-nodes-percent=\"5%\"\n}\n\nrollout \"now\" { immediate }\n";
const SITE: &str = "site \"fra1\" {\n  region \"eu-central\"\n  labels tier=\"production\" ntp=\"10.20.0.11\"\n  gateway \"gw1.fra1.bench.example:7443\"\n}\n";
const BASE: &str = "profile \"base\" {\n  sysctl {\n    \"vm.swappiness\" 1\n    \"net.core.somaxconn\" 4096\n    \"kernel.panic\" 30\n  }\n  file \"/etc/motd\" { template \"templates/motd.j2\"; mode \"0644\" }\n  file \"/etc/chrony/chrony.conf\" { template \"templates/chrony.conf.j2\"; mode \"0644\" }\n  file \"/var/lib/node-exporter/host.prom\" { template \"templates/host.prom.j2\"; mode \"0644\" }\n  unit \"chrony.service\" { enable #true; state \"started\" }\n}\n";
const GPU: &str = "profile \"gpu-host\" {\n  extends \"base\"\n  sysctl { \"vm.max_map_count\" 1048576 }\n  kernel { args \"iommu=pt\" \"init_on_alloc=0\" }\n  package \"nvidia-driver-570-server\" { version \"570.*\" }\n}\n";
const MOTD: &str = "{{ node.name }} in pool {{ pool.name }}, {{ site.region }}.\nRack {{ node.labels.rack }}, unit {{ node.labels.unit }}.\n{% if node.labels.feed == \"a\" %}\nPower feed A.\n{% endif %}\n";
const CHRONY: &str = "server {{ site.labels.ntp }} iburst\ndriftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\n";
const PROM: &str =
    "bc_host_info{node=\"{{ node.name }}\",rack=\"{{ node.labels.rack }}\",fleet=\"{{ fleet.name }}\"} 1\n";

/// A file of the fleet.
pub(crate) type File = (String, String);

/// The pools, four of them.
const POOLS: [&str; 4] = ["a", "b", "c", "d"];

/// Every file of a fleet of `nodes` machines, `yaml` of a hundred of them written in YAML.
pub(crate) fn files(nodes: usize, yaml: usize) -> Vec<File> {
    let fixed = [
        ("fleet.kdl", ROOT),
        ("sites/fra1.kdl", SITE),
        ("profiles/base.kdl", BASE),
        ("profiles/gpu-host.kdl", GPU),
        ("templates/motd.j2", MOTD),
        ("templates/chrony.conf.j2", CHRONY),
        ("templates/host.prom.j2", PROM),
    ];
    let mut files: Vec<File> = fixed.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    for pool in POOLS {
        let text = format!(
            "pool \"{pool}\" {{\n  site \"fra1\"\n  class \"metal-host\"\n  profile \"gpu-host\"\n  hardware {{\n    gpus 8 model=\"H100\"\n    memory \"2TiB\"\n  }}\n}}\n"
        );
        files.push((format!("pools/{pool}.kdl"), text));
    }
    files.extend((0..nodes).map(|index| node(index, yaml, "2026-Q2")));
    files
}

/// Ten machines, anywhere in the fleet, with another label.
pub(crate) fn changed(nodes: usize, yaml: usize) -> Vec<File> {
    (0..10).map(|step| node(step * nodes / 10, yaml, "2026-Q3")).collect()
}

/// One machine, bought when this says.
pub(crate) fn node(index: usize, yaml: usize, bought: &str) -> File {
    let (rack, unit) = (index / RACK, index % RACK);
    let name = format!("fra1-r{rack:04}-u{unit:02}");
    let pool = POOLS[rack % POOLS.len()];
    let mac = |card: usize| {
        format!("3c:ec:{card:02x}:{:02x}:{:02x}:{:02x}", index >> 16 & 255, index >> 8 & 255, index & 255)
    };
    let (one, two, feed) = (mac(0xef), mac(0xf0), if unit.is_multiple_of(2) { "a" } else { "b" });
    let mut text = format!(
        "{} Machine {index}: written by the rack tool, kept by the fleet team.\n",
        if index % 100 < yaml { "#" } else { "//" }
    );
    if index % 100 < yaml {
        let _written = write!(
            text,
            "kind: node\nname: {name}\npool: {pool}\nserial: PF3K{index:06}\nboard-serial: BRD-{rack:04}-{index:06}\nmac: [\"{one}\", \"{two}\"]\nlabels:\n  rack: r{rack:04}\n  unit: u{unit:02}\n  feed: {feed}\n  row: row-{}\n  switch: leaf-{rack:04}-a\n  asset: A-{index:08}\n  bought: {bought}\n",
            rack / 20
        );
    } else {
        let _written = write!(
            text,
            "node \"{name}\" {{\n  pool \"{pool}\"\n  serial \"PF3K{index:06}\"\n  board-serial \"BRD-{rack:04}-{index:06}\"\n  mac \"{one}\" \"{two}\"\n  labels {{\n    rack \"r{rack:04}\"\n    unit \"u{unit:02}\"\n    feed \"{feed}\"\n    row \"row-{}\"\n    switch \"leaf-{rack:04}-a\"\n    asset \"A-{index:08}\"\n    bought \"{bought}\"\n  }}\n\n  cordon \"burn-in until it is accepted, ticket OPS-{index:05}\" owner=\"ada@bench.example\" until=\"2030-01-20T12:00:00Z\"\n}}\n",
            rack / 20
        );
    }
    let ending = if index % 100 < yaml { "yaml" } else { "kdl" };
    (format!("nodes/r{rack:04}/u{unit:02}.{ending}"), text)
}
