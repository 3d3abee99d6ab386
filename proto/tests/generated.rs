//! The committed wire code is what the `.proto` files say.

use std::{env, fs, path::Path};

const FILES: [&str; 6] = [
    "bettercompute/agent/v1/join.proto",
    "bettercompute/agent/v1/node_spec.proto",
    "bettercompute/agent/v1/secrets.proto",
    "bettercompute/agent/v1/session.proto",
    "bettercompute/agent/v1/signed.proto",
    "bettercompute/internal/v1/authority.proto",
];

#[test]
fn committed_code_is_what_the_proto_files_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(FILES, [root]).expect("the proto files compile");
    let fresh = tempfile::tempdir().expect("a directory");
    tonic_prost_build::configure().out_dir(fresh.path()).compile_fds(descriptors).expect("code is generated");
    for name in ["bettercompute.agent.v1.rs", "bettercompute.internal.v1.rs"] {
        let code = fs::read_to_string(fresh.path().join(name)).expect("a generated file");
        let committed = root.join("src/gen").join(name);
        if env::var_os("BETTER_COMPUTE_REGENERATE").is_some() {
            fs::write(&committed, &code).expect("the committed file is writable");
        }
        let found = fs::read_to_string(&committed).unwrap_or_default();
        assert!(
            found == code,
            "{name} is stale; run `BETTER_COMPUTE_REGENERATE=1 cargo test -p proto --test generated`"
        );
    }
}
