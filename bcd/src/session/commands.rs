//! Commands in a session: frames to the desk, and what the desk decides to effects.

use pki::verify::Validity;
use proto::agent::v1::{self as pb, node_frame};

use super::{Core, Effect, Level, Now, Proven};
use crate::{
    command::{
        Do,
        desk::{Event, Frame, Moment},
    },
    wire,
};

impl Core {
    pub(super) fn moment(&self, now: Now) -> Moment {
        let proven = self.proven_at(now).map(Proven::at_most);
        // The clock that goes on in sleep may know more.
        let proven = proven.map(|own| now.proven.map_or(own, |measured| measured.max(own)));
        // A daemon that begins anew may meet a slow clock first. It was later than that already.
        let proven = proven.map(|now| self.floor.map_or(now, |floor| floor.max(now)));
        let confirmed = proven.is_some() && self.unconfirmed.is_none();
        Moment { now: proven, confirmed, wall: now.wall, mono: now.mono, applied: self.progress.applied }
    }

    pub(super) fn command(&mut self, command: pb::Command, now: Now) -> Vec<Effect> {
        let signature = wire::signature(command.signature.clone());
        // A command is judged at one moment: the signature, the deadline and everything else.
        let moment = self.moment(now);
        let validity = moment.now.map_or(Validity::Open, Validity::At);
        let verified = self.trust.verifier().command(self.me.node_id, &command.body, &signature, validity);
        let pb::Command { body: bytes, approval, .. } = command;
        let decided = self.desk.offer(Frame { bytes, signature: &signature, verified, approval }, moment);
        self.decided(decided)
    }

    pub(super) fn cancel_command(&mut self, cancel: &pb::CancelCommand) -> Vec<Effect> {
        let Ok(id) = cancel.command_id.parse() else {
            return vec![Effect::Say(Level::Warn, "a cancellation names no command".to_owned())];
        };
        let decided = self.desk.cancel(id);
        self.decided(decided)
    }

    pub(super) fn command_event(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let decided = self.desk.handle(event, self.moment(now));
        self.decided(decided)
    }

    /// What time and newer specs mean for commands.
    pub(super) fn command_tick(&mut self, now: Now) -> Vec<Effect> {
        let decided = self.desk.tick(self.moment(now));
        self.decided(decided)
    }

    pub(super) fn decided(&self, decided: Vec<Do>) -> Vec<Effect> {
        let effect = |what| match what {
            Do::Warn(text) => Some(Effect::Say(Level::Warn, text)),
            Do::WantSpec(generation) => self.is_open().then(|| {
                let wanted = pb::DesiredStateWanted { generation: generation.0 };
                Effect::Send(node_frame::Frame::DesiredStateWanted(wanted))
            }),
            // What nobody hears now is asked for when the session is open again.
            Do::Say(_) | Do::Spurn(_) | Do::Answer(_) if !self.is_open() => None,
            what => Some(Effect::Command(Box::new(what))),
        };
        decided.into_iter().filter_map(effect).collect()
    }
}
