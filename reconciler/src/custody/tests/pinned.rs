//! Once a fleet is pinned, what nobody verified is composed no more.

use pki::{
    batch::testing::{Fleet, object},
    checkpoint::CheckpointPurpose,
    keys::TrustPin,
};
use schema::digest::Digest;
use store::trust::{self, Checkpoint};

use super::*;
use crate::source::FLEET;

impl Thief {
    fn pin(&mut self) {
        let fleet = Fleet::new("bc.local");
        let pin = TrustPin { commit: object("anchor"), fleet: fleet.id, digest: Digest::of("policy") };
        self.house.keys.pin_trust(pin).expect("pinned");
        self.use_keys();
    }

    async fn looks(&self, state: &str, reason: &str) {
        assert_eq!(look(&self.house, &self.machine).await, (state.to_owned(), reason.to_owned()));
    }
}

#[tokio::test]
async fn what_is_in_force_from_before_the_pin_waits_until_it_is_verified() {
    let mut thief = Thief::new().await;
    thief.pin();
    thief.finds_out("assignment-unverified").await;
    thief.house.vouch(&template("1", "a\n")).await;
    thief.looks("done", "").await;
}

#[tokio::test]
async fn a_revision_from_before_the_pin_is_not_brought_back() {
    let mut thief = Thief::new().await;
    let (old, insert) = planted("weak\n");
    steal(&thief.house, &insert).await;
    thief.house.vouch(&old).await;
    thief.pin();
    thief.house.vouch(&template("1", "a\n")).await;
    thief.looks("done", "").await;
    thief.point(&old).await;
    thief.finds_out("assignment-unverified").await;
}

#[tokio::test]
async fn until_it_is_pinned_every_signed_revision_counts() {
    let thief = Thief::new().await;
    let (old, insert) = planted("old\n");
    steal(&thief.house, &insert).await;
    thief.house.vouch(&old).await;
    thief.point(&old).await;
    thief.looks("done", "").await;
}

#[tokio::test]
async fn keys_from_before_the_pin_compose_nothing_that_they_do_not_know() {
    let thief = Thief::new().await;
    let body = b"how far history was verified";
    let signer = thief.house.keys.checkpoint_signer(&thief.house.shared.realm.fleet_id);
    let signature = signer.sign(CheckpointPurpose::VerifiedCheckpoint, body);
    let keep = async |expected: Option<u64>, signature: &[u8]| {
        let seq = expected.map_or(1, |seq| seq + 1);
        let (commit, body, signature) = ("c".repeat(40), body.to_vec(), signature.to_vec());
        let checkpoint = Checkpoint { commit, epoch: 1, seq, body, signature };
        let mut txn = thief.house.db.begin().await.expect("begin");
        trust::put_checkpoint(&mut txn, FLEET, expected, &checkpoint).await.expect("kept");
        txn.commit().await.expect("commit");
    };
    keep(None, b"of a thief").await;
    thief.house.assign(&thief.machine, &template("2", "b\n")).await;
    thief.looks("done", "").await;
    keep(Some(1), &signature).await;
    thief.house.assign(&thief.machine, &template("3", "c\n")).await;
    thief.looks("wait", "keys-unpinned").await;
}
