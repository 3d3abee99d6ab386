//! What is kept up without git is as verified as what is in force.

use store::{revisions, testing::probes};

use super::*;
use crate::custody;

impl People {
    /// The newest revision, and the anchor that its manifest names.
    async fn newest(&self) -> (revisions::Revision, Option<String>) {
        let newest = self.world.newest().await;
        let (db, signer) = (self.world.db.db(), self.custody.signer());
        let manifest = custody::proven(db, signer.verifier(), newest.revision.id).await.expect("reads");
        (newest, manifest.expect("a manifest").verified)
    }

    /// Something in the database is not as it should be, and is put right.
    async fn is_put_right(&self) {
        let before = self.newest().await.0.revision.id;
        let odd = "UPDATE objects SET state = 'retained' WHERE name = 'fra1'";
        assert_eq!(probes::steal(self.world.db.db(), odd).await.expect("a superuser may"), 1);
        self.run().await;
        assert_ne!(self.newest().await.0.revision.id, before, "another revision");
    }
}

#[tokio::test]
async fn what_is_put_right_while_the_tip_is_held_is_as_verified_as_it_was() {
    let Some(mut people) = People::new("").await else { return };
    people.goes().await;
    assert_eq!(people.newest().await.1, None, "nobody pinned the fleet");
    let anchor = people.head();
    people.pin(&anchor);
    people.goes().await;
    assert_eq!(people.newest().await.1, Some(anchor.clone()), "the tip was verified since");

    people.git().write("sites/fra2.kdl", "site \"fra2\" {\n    region \"eu\"\n}\n");
    let good = people.sign("bob", "sites: fra2");
    people.goes().await;
    let back = people.newest().await.0.revision.id;
    people.git().write("sites/fra3.kdl", "site \"fra3\" {\n    region \"eu\"\n}\n");
    people.sign("bob", "sites: fra3");
    people.goes().await;
    let newer = people.newest().await.0.revision.id;
    people.world.ask(back).await;
    assert_eq!(people.run().await, Passed::RolledBack { commit: good.clone() });
    people.is_put_right().await;
    let (kept, verified) = people.newest().await;
    assert_eq!((kept.revision.commit, verified), (good, Some(anchor)));

    // And so it is gone back to.
    let kept = kept.revision.id;
    people.world.ask(newer).await;
    assert!(matches!(people.run().await, Passed::RolledBack { .. }));
    people.world.ask(kept).await;
    assert!(matches!(people.run().await, Passed::RolledBack { .. }));
}

#[tokio::test]
async fn what_is_put_right_before_anybody_verified_it_is_no_more_verified_than_it_was() {
    let Some(mut people) = People::new("").await else { return };
    let anchor = people.head();
    people.git().commit("nobody signed this");
    people.goes().await;
    people.pin(&anchor);
    people.is_put_right().await;
    assert_eq!(people.newest().await.1, None);
}
