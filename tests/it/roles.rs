//! The same parts apart: a control plane and a gateway as two processes over one PostgreSQL.

use std::fs;

use serde_json::Value;
use tests::{Cli, Node, Repo, Up, World, process, process::Process, until, up::second_database};

#[test]
fn a_gateway_apart_forwards_what_needs_authority() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    // The first control plane lends its PostgreSQL; its own rows are in another database.
    let host = Up::start(&world, "host", repo.dir());
    let database = second_database(host.data());
    let keys = world.path("keys");
    let cli = Cli::offline();
    let path = |name: &str| world.path(name).display().to_string();
    let _ = cli.ok(&[
        "keys",
        "init",
        "--keys",
        &keys.display().to_string(),
        "--trust-domain",
        "acme.example",
        "--dev",
        "--database",
        &database,
    ]);
    let _ = cli.ok(&[
        "keys",
        "gateway",
        "--keys",
        &keys.display().to_string(),
        "--out",
        &path("gateway-keys"),
        "--name",
        "127.0.0.1",
    ]);
    let ports = free_ports();
    let [api, internal, gateway] = ports.map(|port| format!("127.0.0.1:{port}"));

    let fleet = repo.dir().display().to_string();
    let url = format!("https://{gateway}");
    let control = cli.command(&[
        "serve",
        "--roles",
        "api,source,controllers,scheduler,sinks",
        "--keys",
        &keys.display().to_string(),
        "--database",
        &database,
        "--fleet",
        &fleet,
        "--data",
        &path("served"),
        "--listen-api",
        &api,
        "--listen-internal",
        &internal,
        "--gateway",
        &url,
        "--client",
        &path("served/client.json"),
    ]);
    fs::create_dir_all(world.path("served")).expect("a directory");
    let mut control = Process::start("control plane", control, &world.path("control.log"));
    let edge = cli.command(&[
        "serve",
        "--roles",
        "gateway",
        "--keys",
        &path("gateway-keys"),
        "--database",
        &database,
        "--listen-gateway",
        &gateway,
        "--authority",
        &internal,
    ]);
    let mut edge = Process::start("gateway", edge, &world.path("edge.log"));

    let served = Cli::of(&world.path("served"));
    until("the served API answers", || served.run(&["status", "--format", "json"]).code == 0);
    let client: Value =
        serde_json::from_slice(&fs::read(world.path("served/client.json")).expect("client.json")).expect("JSON");
    assert_eq!(served.run(&["status", "--wait", "applied", "--timeout", "60s"]).code, 0);
    let token = served.ok(&["token", "create", "--quiet", "--pool", "h100"]);
    let mut node = Node::new(&world, "one");
    until("the gateway forwards a join", || {
        node.join(&url, client["pin"].as_str().unwrap_or_default(), token.trim()).0 == 0
    });
    node.run(&[]);
    let said = served.run(&["status", "--wait", "converged", "--nodes", "1", "--timeout", "90s"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(!world.path("gateway-keys/control-plane.sealed").exists());

    drop(node);
    assert!(edge.stop().success(), "{}", edge.log());
    assert!(control.stop().success(), "{}", control.log());
    assert!(process::mentioning(&path("served")).is_empty());
}

fn free_ports() -> [u16; 3] {
    let sockets = [0; 3].map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
    sockets.map(|socket| socket.local_addr().expect("its address").port())
}
