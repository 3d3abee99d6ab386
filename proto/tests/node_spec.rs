//! `schema::spec` and the protobuf `NodeSpec` are the same document.

use prost_reflect::{DescriptorPool, DynamicMessage};
use schema::spec::{
    AccessKey, AccessSection, DriftMode, DriftRule, HostFile, HostSection, Hugepages, KernelModule, NodeSpec,
    PackagePin, SecretVersion, Unit,
};

/// A spec in which every member has a value that is not its default.
fn full() -> NodeSpec {
    NodeSpec {
        host: HostSection {
            sysctl: [("vm.swappiness".to_owned(), "1".to_owned())].into(),
            modules: vec![KernelModule { name: "nvidia".into(), options: "a=1".into(), blacklist: true }],
            kernel_args: vec!["iommu=pt".into()],
            hugepages: vec![Hugepages { size_kib: 2048, count: 8 }],
            files: vec![HostFile {
                path: "/etc/motd".into(),
                content: "hello\n".into(),
                secret: Some(SecretVersion { name: "motd/of-the-day".parse().expect("a name"), version: 7 }),
                mode: "0644".into(),
                owner: "root".into(),
                group: "root".into(),
                restart: vec!["motd.service".into()],
            }],
            units: vec![Unit {
                name: "a.service".into(),
                content: "[Unit]\n".into(),
                enabled: Some(true),
                active: Some(false),
                drain: true,
            }],
            packages: vec![PackagePin { name: "nvidia-driver".into(), version: "580.*".into() }],
            drift: vec![DriftRule { path: "sysctl.vm.*".into(), mode: DriftMode::Adopt }],
        },
        access: AccessSection {
            keys: vec![AccessKey {
                principal: "ada".into(),
                account: "root".into(),
                key: "ssh-ed25519 AAAA".into(),
                until: Some("2026-12-01T00:00:00Z".parse().expect("a time")),
            }],
        },
    }
}

#[test]
fn canonical_bytes_are_proto3_json_of_the_message() {
    let files =
        protox::compile(["bettercompute/agent/v1/node_spec.proto"], [env!("CARGO_MANIFEST_DIR")]).expect("it compiles");
    let pool = DescriptorPool::from_file_descriptor_set(files).expect("a pool");
    let message = pool.get_message_by_name("bettercompute.agent.v1.NodeSpec").expect("the message");
    let spec = full();
    let bytes = spec.to_bytes();
    let mut reader = serde_json::Deserializer::from_slice(&bytes);
    let read = DynamicMessage::deserialize(message, &mut reader).expect("the message reads the canonical bytes");
    let back =
        NodeSpec::from_bytes(&serde_json::to_vec(&read).expect("it prints")).expect("the types read the message");
    assert_eq!(back, spec);
}
