//! The schedulable predicate in SQL is the one in Rust, over every combination of what it reads.

use std::collections::BTreeMap;

use schema::{
    generation::Generation,
    id::{NodeId, RevisionId},
    node::{Bucket, Connectivity, Facts, PoolClass, ProvisionState, Role, Trust, schedulable},
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use store::{
    nodes,
    pools::{self, NewPool},
    testing::TestDb,
};

use crate::{apply, commit, name, node};

/// Where a machine sits, who owns it, and whether that is its owner's pool.
const PLACES: [(Option<&str>, Option<&str>, bool); 5] = [
    (Some("ours"), Some("acme"), true),
    (Some("theirs"), Some("acme"), false),
    (Some("nobodys"), Some("acme"), false),
    (None, Some("acme"), false),
    (Some("nobodys"), None, false),
];

fn combinations() -> Vec<(Facts, Value)> {
    let mut all = Vec::new();
    for (pool, owner, in_owners_pool) in PLACES {
        for role in Role::ALL {
            for trust in Trust::ALL {
                for provision in ProvisionState::ALL {
                    for connectivity in Connectivity::ALL {
                        for bits in 0..16_u8 {
                            let (maintenance, cordoned, observed, reason) =
                                (bits & 1 > 0, bits & 2 > 0, u64::from(bits & 4 > 0), bits & 8 > 0);
                            let reasons = if reason { vec!["taint:x"] } else { vec![] };
                            let row = json!({
                                "pool": pool, "owner_tenant": owner, "role": role, "trust": trust, "provision_state": provision,
                                "connectivity": connectivity, "maintenance": maintenance, "cordoned": cordoned,
                                "observed_generation": observed, "no_schedule_reasons": reasons,
                            });
                            let facts = Facts {
                                role: *role,
                                trust: *trust,
                                in_owners_pool,
                                maintenance,
                                cordoned,
                                provision: *provision,
                                observed: Generation(observed),
                                connectivity: *connectivity,
                                no_schedule: reasons.iter().map(|text| text.parse().expect("a reason")).collect(),
                            };
                            all.push((facts, row));
                        }
                    }
                }
            }
        }
    }
    all
}

#[tokio::test]
async fn sql_and_rust_agree_on_every_combination() {
    let test = TestDb::create().await;
    let pool = |text: &str, owner: Option<&str>| NewPool {
        name: name(text),
        site: name("fra1"),
        class: PoolClass::MetalHost,
        owner_tenant: owner.map(str::to_owned),
        policy: json!({}),
        target: None,
        profile_targets: BTreeMap::new(),
    };
    let revision: RevisionId = apply::revision(test.db(), "1", &[]).await;
    let all = [pool("ours", Some("acme")), pool("theirs", Some("other")), pool("nobodys", None)];
    commit!(test.db(), |txn| pools::upsert(&mut txn, revision, &all).await.expect("pools"));

    let (facts, rows): (Vec<Facts>, Vec<Value>) = combinations().into_iter().unzip();
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    let buckets: Vec<String> = sqlx::query_scalar(
        r"SELECT node_bucket(jsonb_populate_record(NULL::nodes, row))
          FROM jsonb_array_elements($1) WITH ORDINALITY AS r (row, place)
          ORDER BY place",
    )
    .bind(Value::Array(rows))
    .fetch_all(&mut conn)
    .await
    .expect("buckets");
    assert_eq!(buckets.len(), 5 * 4 * 3 * 13 * 4 * 16);
    for (facts, bucket) in facts.iter().zip(buckets) {
        let expected =
            schedulable::schedulable(facts).map_or_else(|bucket| bucket.to_string(), |()| "schedulable".to_owned());
        assert_eq!(bucket, expected, "{facts:?}");
    }
}

#[tokio::test]
async fn the_bucket_of_a_fresh_machine_is_provisioning() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    assert_eq!(nodes::bucket(test.db(), id).await.expect("bucket"), Some(Err(Bucket::Provisioning)));
    assert_eq!(nodes::bucket(test.db(), NodeId::generate()).await.expect("bucket"), None);
}
