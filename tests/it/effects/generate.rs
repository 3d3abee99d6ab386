//! Pairs of fleets from seeds, and the root directory of a fresh machine.

use std::{collections::BTreeMap, fmt::Write as _, fs, os::unix::fs::symlink, path::Path};

use schema::time::Timestamp;

/// The machines of every fleet: one as its pool, one with a profile of its own.
pub(super) const NODES: [&str; 2] = ["plain", "special"];

/// Units that come with packages; they run and start at boot until somebody says otherwise.
pub(super) const PACKAGED: [&str; 3] = ["chrony.service", "cron.service", "nvidia-persistenced.service"];

const OWN: [&str; 2] = ["agent.service", "exporter.service"];
const SYSCTL: [&str; 5] = ["vm.swappiness", "vm.max_map_count", "kernel.panic", "net.core.somaxconn", "fs.file-max"];
const FILES: [&str; 5] = [
    "/etc/motd",
    "/etc/chrony/chrony.conf",
    "/opt/site/a.conf",
    "/opt/site/b.conf",
    "/etc/systemd/system/cron.service.d/override.conf",
];
const MODULES: [&str; 3] = ["nvidia", "overlay", "nouveau"];
const ARGS: [&str; 4] = ["iommu=pt", "quiet", "mitigations=off", "nosmt"];
const PACKAGES: [&str; 2] = ["docker-ce", "nvidia-driver-570-server"];
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp";

/// When everything happens.
pub(super) fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

/// SplitMix64: the same numbers for the same seed, everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }

    fn pick<'w>(&mut self, words: &[&'w str]) -> &'w str {
        words[usize::try_from(self.roll(words.len() as u64)).expect("small")]
    }
}

/// A profile as lines: a key and what is written for it, so that an edit is one entry more, less or other.
type Lines = BTreeMap<(&'static str, String), String>;

struct Wish {
    base: Lines,
    child: Lines,
    labels: [u64; 2],
    moved: bool,
}

/// Two fleets, the second one a few edits after the first.
pub(super) fn pair(seed: u64) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let mut dice = Dice(seed);
    let mut wish = Wish { base: Lines::new(), child: Lines::new(), labels: [0, 0], moved: false };
    for _ in 0..8 + dice.roll(10) {
        edit(&mut wish, &mut dice);
    }
    let before = wish.files();
    // Every twentieth pair is the same fleet twice, and many are one edit apart.
    let edits = if seed.is_multiple_of(20) { 0 } else { 1 + dice.roll(1 + dice.0 % 5) };
    for _ in 0..edits {
        edit(&mut wish, &mut dice);
    }
    (before, wish.files())
}

fn edit(wish: &mut Wish, dice: &mut Dice) {
    if dice.one_in(8) {
        let which = usize::try_from(dice.roll(2)).expect("small");
        wish.labels[which] = dice.roll(4);
        return;
    }
    if dice.one_in(25) {
        wish.moved = !wish.moved;
        return;
    }
    let (key, line) = line(dice);
    let lines = if dice.one_in(3) { &mut wish.child } else { &mut wish.base };
    if lines.contains_key(&key) && dice.one_in(2) {
        lines.remove(&key);
    } else {
        lines.insert(key, line);
    }
}

fn line(dice: &mut Dice) -> ((&'static str, String), String) {
    let number = 11 + dice.roll(6);
    match dice.roll(8) {
        0 => {
            let name = dice.pick(&SYSCTL);
            (("sysctl", name.to_owned()), format!("{name} {number}"))
        }
        1 => {
            let path = dice.pick(&FILES);
            let mode = if dice.one_in(4) { "0600" } else { "0644" };
            let restart = if dice.one_in(2) { format!(" restart=\"{}\"", dice.pick(&PACKAGED)) } else { String::new() };
            let text = match dice.roll(3) {
                0 => "template=\"own.j2\"".to_owned(),
                1 => "template=\"same.j2\"".to_owned(),
                _ => format!("content=\"text {number}\""),
            };
            (("file", path.to_owned()), format!("file \"{path}\" {text} mode=\"{mode}\"{restart}"))
        }
        2 => {
            let name = dice.pick(&PACKAGED);
            let mut line = format!("unit \"{name}\"");
            words(&mut line, dice);
            (("unit", name.to_owned()), line)
        }
        3 => {
            let name = dice.pick(&OWN);
            let mut line = format!(
                "unit \"{name}\" content=\"[Service]\\nExecStart=/bin/true {number}\\n[Install]\\nWantedBy=multi-user.target\\n\""
            );
            words(&mut line, dice);
            (("unit", name.to_owned()), line)
        }
        4 => {
            let name = dice.pick(&MODULES);
            let more = match dice.roll(3) {
                0 => format!(" options=\"NVreg_X={number}\""),
                1 => " blacklist=#true".to_owned(),
                _ => String::new(),
            };
            (("kernel", name.to_owned()), format!("module \"{name}\"{more}"))
        }
        5 => (("args", dice.pick(&ARGS).to_owned()), String::new()),
        6 => {
            let size = if dice.one_in(2) { "2MiB" } else { "1GiB" };
            (("hugepages", size.to_owned()), format!("\"{size}\" {number}"))
        }
        _ => {
            if dice.one_in(2) {
                let name = dice.pick(&PACKAGES);
                return (("package", name.to_owned()), format!("package \"{name}\" version=\"{number}.*\""));
            }
            let name = dice.pick(&["ada", "bo"]);
            let until =
                if dice.one_in(2) { format!(" until=\"20{}-01-01T00:00:00Z\"", number + 20) } else { String::new() };
            (("access", name.to_owned()), format!("key \"{name}\" account=\"root\" key=\"{KEY}\"{until}"))
        }
    }
}

fn words(line: &mut String, dice: &mut Dice) {
    for (chance, word) in [
        (2, "enable=#true"),
        (3, "enable=#false"),
        (2, "state=\"started\""),
        (3, "state=\"stopped\""),
        (3, "drain=#true"),
    ] {
        let taken = word.split('=').next().is_some_and(|key| line.contains(&format!(" {key}=")));
        if !taken && dice.one_in(chance) {
            let _ = write!(line, " {word}");
        }
    }
}

impl Wish {
    fn files(&self) -> BTreeMap<String, String> {
        let own = if self.moved { "base" } else { "host" };
        let fleet = format!(
            "fleet \"f\" {{ format 1; trust-domain \"f.example\" }}\nsite \"s\"\n\
             pool \"p\" {{ site \"s\"; profile \"host\" }}\n\
             node \"plain\" {{ pool \"p\"; labels rack=\"r{}\" }}\n\
             node \"special\" {{ pool \"p\"; profile \"{own}\"; labels rack=\"r{}\" }}\n",
            self.labels[0], self.labels[1],
        );
        let files = [
            ("fleet.kdl", fleet),
            ("base.kdl", profile("base", None, &self.base)),
            ("host.kdl", profile("host", Some("base"), &self.child)),
            ("own.j2", "{{ node.name }} in {{ node.labels.rack | default(\"none\") }}\n".to_owned()),
            ("same.j2", "in {{ pool.name }}\n".to_owned()),
        ];
        files.into_iter().map(|(path, text)| (path.to_owned(), text)).collect()
    }
}

fn profile(name: &str, parent: Option<&str>, lines: &Lines) -> String {
    let mut text = format!("profile \"{name}\" {{\n");
    if let Some(parent) = parent {
        let _ = writeln!(text, "  extends \"{parent}\"");
    }
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let args: Vec<String> =
        lines.keys().filter(|(group, _)| *group == "args").map(|(_, arg)| format!("{arg:?}")).collect();
    for ((group, _), line) in lines.iter().filter(|((group, _), _)| *group != "args") {
        groups.entry(*group).or_default().push(line);
    }
    let args = format!("args {}", args.join(" "));
    if args != "args " {
        groups.entry("kernel").or_default().push(&args);
    }
    for (group, lines) in groups {
        let block = matches!(group, "sysctl" | "kernel" | "hugepages" | "access");
        let body = lines.join("\n  ");
        let _ = if block { writeln!(text, "  {group} {{\n  {body}\n  }}") } else { writeln!(text, "  {body}") };
    }
    text.push_str("}\n");
    text
}

/// The root directory of a machine as its image left it.
pub(super) fn root(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(&path[1..]);
        fs::create_dir_all(path.parent().expect("has one")).expect("directories");
        fs::write(path, text).expect("written");
    };
    write("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n");
    write("/etc/group", "root:x:0:\n");
    write("/etc/motd", "welcome\n");
    write("/proc/cmdline", "root=/dev/sda1\n");
    write("/usr/sbin/update-grub", "");
    write("/etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\n");
    for name in SYSCTL {
        write(&format!("/proc/sys/{}", name.replace('.', "/")), "1\n");
    }
    for size in [2048, 1_048_576] {
        write(&format!("/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"), "0\n");
    }
    for directory in ["run/systemd/system", "sys/module", "etc/systemd/system/multi-user.target.wants"] {
        fs::create_dir_all(root.join(directory)).expect("directories");
    }
    for unit in PACKAGED {
        let file = format!("/usr/lib/systemd/system/{unit}");
        write(&file, "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n");
        let link = root.join(format!("etc/systemd/system/multi-user.target.wants/{unit}"));
        symlink(&file, link).expect("linked");
    }
}
