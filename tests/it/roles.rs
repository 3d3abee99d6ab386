//! The same parts apart: a control plane and a gateway as two processes over one PostgreSQL.

use tests::{Apart, Node, Repo, World, process, until};

#[test]
fn a_gateway_apart_forwards_what_needs_authority() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut apart = Apart::start(&world, &repo, 1);
    let token = apart.token("h100", 1);
    let url = format!("https://{}", apart.gateways[0].address);
    let mut node = Node::new(&world, "one");
    until("the gateway forwards a join", || node.join(&url, &apart.pin(), &token).0 == 0);
    node.run(&[]);
    let said = apart.cli().run(&["status", "--wait", "converged", "--nodes", "1", "--timeout", "90s"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(!world.path("gateway-0-keys/control-plane.sealed").exists());

    drop(node);
    let gateway = &mut apart.gateways[0].process;
    assert!(gateway.stop().success(), "{}", gateway.log());
    assert!(apart.control.process.stop().success(), "{}", apart.control.process.log());
    assert!(process::mentioning(&world.path("served").display().to_string()).is_empty());
}
