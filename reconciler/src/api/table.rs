//! Every method of the API, one row each. Routing, scopes, OpenAPI and the reference page are read from here.

mod method;

use std::sync::LazyLock;

use method::{decode, encode, mutation, query, row};

use super::groups::{
    audit, batches, brakes, commands, events, fleet, joins, keys, nodes, plans, pools, revisions, secrets, sites,
    tokens, why,
};

pub use method::{After, Answer, Handler, MAX_BODY, Method, Mutation, MutationHandler, QueryHandler};

/// The table.
pub static METHODS: LazyLock<Vec<Method>> = LazyLock::new(|| {
    vec![
        mutation(
            "commandBatches",
            "cancel",
            "commandBatches:write",
            "Takes a batch back: what of it has not begun never does. Anybody who may run commands can.",
            batches::cancel,
        ),
        mutation(
            "commandBatches",
            "close",
            "commandBatches:write",
            "Says what was found about an emergency afterwards, so that it is not to be reviewed any more.",
            batches::close,
        ),
        mutation(
            "commandBatches",
            "create",
            "commandBatches:write",
            "Asks for a batch: where people approve, as a commit that this control plane signs as a service beside the branch; elsewhere written down for audit.",
            batches::create,
        ),
        query(
            "commandBatches",
            "get",
            "commandBatches:read",
            "One batch: what people sign, what they said, and how far it is.",
            batches::get,
        ),
        query("commandBatches", "list", "commandBatches:read", "Batches, newest first.", batches::list),
        query(
            "commandBatches",
            "scope",
            "commandBatches:read",
            "The machines of a batch, a page at a time: what is done to each, and how far it is.",
            batches::scope,
        ),
        mutation(
            "commands",
            "cancel",
            "commands:write",
            "Takes a command back: at once while it waits; in flight its node is asked, and says what really happened.",
            commands::cancel,
        ),
        query(
            "commands",
            "check",
            "commands:read",
            "What a command would come to on each node, and what is held there; nothing is queued.",
            commands::check,
        ),
        query("commands", "get", "commands:read", "One command, with its result.", commands::get),
        query("commands", "list", "commands:read", "Commands, newest first.", commands::list),
        mutation(
            "commands",
            "run",
            "commands:write",
            "Queues one-shot work for a node; it runs before its deadline or not at all.",
            commands::run,
        ),
        query(
            "events",
            "list",
            "events:read",
            "What happened, in an order in which nothing is missed; waits for the next one when asked to.",
            events::list,
        )
        .waits(),
        mutation(
            "fleet",
            "accept",
            "fleet:write",
            "Accepts a rewritten history: exactly this commit comes into force although it does not follow the last one.",
            fleet::accept,
        ),
        query(
            "fleet",
            "holds",
            "fleet:read",
            "Everything that is held or will be, by whom, why and until when, and the commits in quarantine.",
            brakes::holds,
        ),
        mutation(
            "fleet",
            "quarantine",
            "fleet:write",
            "Keeps a commit from coming into force; what is in force stays, and a newer commit goes.",
            brakes::quarantine,
        ),
        mutation("fleet", "release", "fleet:write", "Lets a quarantined commit go.", brakes::release),
        mutation(
            "fleet",
            "resume",
            "fleet:write",
            "Lifts a suspension that was placed by hand; one of a document is lifted in the repository.",
            brakes::resume,
        ),
        mutation(
            "fleet",
            "rollback",
            "fleet:write",
            "Goes back to a revision from its stored files, as a plan forward; the commit in force is put in quarantine.",
            brakes::rollback,
        ),
        query(
            "fleet",
            "status",
            "fleet:read",
            "Where the fleet stands: source, pools, nodes, machines that wait to join, and what is stuck.",
            fleet::status,
        ),
        mutation(
            "fleet",
            "suspend",
            "fleet:write",
            "Keeps the machines of the fleet, a site, a pool or one node as they are, until it ends or is lifted.",
            brakes::suspend,
        ),
        query(
            "fleet",
            "why",
            "fleet:read",
            "What a machine or a command waits for: since when, who can lift it, and how.",
            why::why,
        ),
        mutation(
            "joins",
            "approve",
            "joins:write",
            "Lets the next try of a machine through that waits for a yes, once.",
            joins::approve,
        ),
        query("joins", "list", "joins:read", "Machines that wait to join or were refused, newest first.", joins::list),
        query("joins", "get", "joins:read", "One join, with the document that would admit the machine.", joins::get),
        query(
            "keys",
            "progress",
            "keys:read",
            "How many nodes follow a rotation of keys, and who does not.",
            keys::progress,
        ),
        mutation(
            "keys",
            "endGateway",
            "keys:write",
            "A gateway apart gets no more certificates: for one that was lost.",
            keys::end_gateway,
        ),
        query(
            "keys",
            "holders",
            "keys:read",
            "Processes and gateways apart, with the revision of the keys that each works with.",
            keys::holders,
        ),
        mutation(
            "keys",
            "reseal",
            "keys:write",
            "Seals some values of secrets anew that another key sealed than the present one, until there are none.",
            keys::reseal,
        ),
        mutation(
            "nodes",
            "adopt",
            "nodes:write",
            "Makes the checks of a machine that failed them anew, or adopts it as it is.",
            nodes::adopt,
        ),
        mutation(
            "nodes",
            "cordon",
            "nodes:write",
            "Places a hold of the API on a node: nothing new is placed on it.",
            nodes::cordon,
        ),
        mutation(
            "nodes",
            "delete",
            "nodes:write",
            "Forgets a machine: its session ends, its certificates are void, and its name and hardware may join again.",
            nodes::delete,
        ),
        query(
            "nodes",
            "drift",
            "nodes:read",
            "What something else than the daemon changed on machines: since when, what is done about it, and how often.",
            nodes::drift,
        ),
        query(
            "nodes",
            "get",
            "nodes:read",
            "One node, by id or name, with holds, sections, inventory, session and what it waits for.",
            nodes::get,
        ),
        query("nodes", "list", "nodes:read", "Nodes by name, a page at a time.", nodes::list),
        mutation(
            "nodes",
            "rebind",
            "nodes:write",
            "Moves a node to its new hardware: that of its own machine after a repair, or that of a machine that joins.",
            nodes::rebind,
        ),
        mutation(
            "nodes",
            "revokeIdentity",
            "nodes:write",
            "Ends a node's identity at once: its session ends, its certificates are void, and it renews nothing.",
            nodes::revoke_identity,
        ),
        mutation(
            "nodes",
            "uncordon",
            "nodes:write",
            "Lifts the hold that the API placed; holds of git and of health are lifted where they were placed.",
            nodes::uncordon,
        ),
        mutation(
            "nodes",
            "vouch",
            "nodes:write",
            "Stands by what a machine is called and where it belongs, as its row says it: specs are composed for it again.",
            nodes::vouch,
        ),
        query("plans", "get", "plans:read", "One plan, by id, commit or digest, with its whole document.", plans::get),
        query("plans", "list", "plans:read", "Plans, newest first.", plans::list),
        row::<plans::Preview, plans::Previewed>(
            "plans",
            "preview",
            "plans:preview",
            "What would happen if these files were the fleet; writes nothing but the plan that it shows.",
            Handler::Query(Box::new(|app, caller, input| {
                Box::pin(async move { encode(plans::preview(app, caller, decode(input)?).await?) })
            })),
        )
        .heavy(),
        query("audit", "export", "audit:read", "A part of the audit log as a file that proves itself.", audit::export)
            .heavy(),
        query("audit", "list", "audit:read", "Who did what, newest first.", audit::list),
        mutation(
            "audit",
            "mend",
            "audit:write",
            "Sets aside what somebody wrote into the chain of the audit log, names it in the log, and lets the chain go on.",
            audit::mend,
        )
        .heavy(),
        query(
            "audit",
            "receipt",
            "audit:read",
            "What became of a batch, as a file that proves itself.",
            audit::receipt,
        )
        .heavy(),
        query("audit", "status", "audit:read", "How far the audit log is chained and signed.", audit::status),
        query("pools", "get", "pools:read", "One pool, with its progress and its document.", pools::get),
        query("pools", "list", "pools:read", "Pools with their progress.", pools::list),
        query(
            "revisions",
            "get",
            "revisions:read",
            "One revision, with the objects, files and commits that it brought.",
            revisions::get,
        ),
        query("revisions", "list", "revisions:read", "What was in force, newest first.", revisions::list),
        mutation("secrets", "delete", "secrets:write", "Forgets a secret with all its versions.", secrets::delete),
        query("secrets", "list", "secrets:read", "Secrets by name, without their values.", secrets::list),
        mutation(
            "secrets",
            "put",
            "secrets:write",
            "Keeps a value as the next version of a secret; no call shows it again.",
            secrets::put,
        )
        .hiding(&[secrets::VALUE]),
        query("sites", "get", "sites:read", "One site, with its document.", sites::get),
        query("sites", "list", "sites:read", "Sites with their pools.", sites::list),
        mutation(
            "tokens",
            "create",
            "tokens:write",
            "Makes a join token for a pool; it is shown once.",
            tokens::create,
        )
        .with_secrets(&["token"]),
        mutation(
            "tokens",
            "createApi",
            "tokens:write",
            "Makes an API token with at most the caller's scopes; it is shown once.",
            tokens::create_api,
        )
        .with_secrets(&["token"]),
        query("tokens", "list", "tokens:read", "Join tokens, without their secrets.", tokens::list),
        query("tokens", "listApi", "tokens:read", "API tokens, without their secrets.", tokens::list_api),
        mutation(
            "tokens",
            "revoke",
            "tokens:write",
            "Revokes a join token; machines that joined with it stay.",
            tokens::revoke,
        ),
        mutation("tokens", "revokeApi", "tokens:write", "Revokes an API token at once.", tokens::revoke_api),
    ]
});

/// The method of this group and name.
#[must_use]
pub fn find(group: &str, name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.group == group && method.name == name)
}
