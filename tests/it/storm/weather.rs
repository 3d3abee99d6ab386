//! What befalls the processes and the wires between them, by numbers that follow from a seed.
//!
//! Each step something begins, and what began some steps before ends. A control plane that is frozen or sees no database
//! hears nobody, so nothing is asked for while it is dark.

use std::{collections::BTreeMap, time::Duration};

use nix::sys::signal::{Signal, kill};
use tests::proxy::{Harm, Proxy, Way};

use super::Storm;

const STEPS: [&str; 10] = [
    "before:accept",
    "after:accept",
    "before:start",
    "after:start",
    "before:effect",
    "after:effect",
    "before:settle",
    "after:settle",
    "before:refuse",
    "after:refuse",
];

/// Numbers that follow from a seed.
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A wire of the storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Machine(usize),
    Database(usize),
    Authority(usize),
    ControlDatabase,
}

/// A process of the storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Machine(usize),
    Gateway(usize),
    Control,
}

/// What ends what has begun.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The wire is clear again, and its connections are gone with what they lost.
    Clear(Place),
    /// The process goes on.
    GoOn(Who),
}

/// What goes on.
#[derive(Debug, Default)]
pub(super) struct Sky {
    step: u32,
    ends: Vec<(u32, End)>,
    counts: BTreeMap<&'static str, u32>,
}

impl Sky {
    /// Whether nobody can be asked.
    pub(super) fn is_dark(&self) -> bool {
        let hides = |end: &End| matches!(end, End::Clear(Place::ControlDatabase) | End::GoOn(Who::Control));
        self.ends.iter().any(|(_, end)| hides(end))
    }

    /// What happened how often.
    pub(super) fn told(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
        format!("the storm: {}", counts.join(", "))
    }

    /// One step.
    pub(super) fn change(&mut self, storm: &mut Storm, dice: &mut Dice) {
        self.step += 1;
        let (due, later): (Vec<_>, Vec<_>) = self.ends.drain(..).partition(|(at, _)| *at <= self.step);
        self.ends = later;
        for (_, end) in due {
            self.end(storm, end);
        }
        for machine in &mut storm.machines {
            if machine.node.daemon.as_mut().is_none_or(|daemon| daemon.ended().is_some()) {
                machine.start(None);
            }
        }
        match dice.below(20) {
            0..9 => {
                let machine = dice.below(storm.machines.len());
                self.wire(storm, Place::Machine(machine), dice);
            }
            9 | 10 => {
                let gateway = dice.below(storm.apart.gateways.len());
                self.wire(storm, Place::Database(gateway), dice);
            }
            11 => {
                let gateway = dice.below(storm.apart.gateways.len());
                self.wire(storm, Place::Authority(gateway), dice);
            }
            12 => self.wire(storm, Place::ControlDatabase, dice),
            13..17 => self.machine(storm, dice),
            17 => self.gateway(storm, dice),
            18 => self.control(storm, dice),
            _ => self.database(storm, dice),
        }
    }

    /// The weather clears, and everything runs.
    pub(super) fn clear(&mut self, storm: &mut Storm) {
        for (_, end) in std::mem::take(&mut self.ends) {
            self.end(storm, end);
        }
        for machine in &mut storm.machines {
            machine.wire.clear();
            if let Some(mut daemon) = machine.node.daemon.take() {
                daemon.kill();
            }
            machine.start(None);
        }
        for part in storm.apart.gateways.iter().chain([&storm.apart.control]) {
            part.clear();
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn later(&mut self, dice: &mut Dice, end: End) {
        let steps = 1 + u32::try_from(dice.below(4)).expect("a few");
        self.ends.push((self.step + steps, end));
    }

    fn end(&mut self, storm: &mut Storm, end: End) {
        match end {
            End::Clear(place) => {
                let wire = wire(storm, place);
                wire.clear();
                wire.tear();
            }
            End::GoOn(who) => {
                signal(storm, who, Signal::SIGCONT);
            }
        }
    }

    fn wire(&mut self, storm: &Storm, place: Place, dice: &mut Dice) {
        let wire = wire(storm, place);
        let way = dice.one_of(&[Way::Up, Way::Down]);
        match dice.below(9) {
            0 => {
                self.count("torn");
                wire.tear();
            }
            1 => {
                self.count("cut");
                wire.cut();
            }
            2 => {
                self.count("half open");
                wire.freeze(true);
                self.later(dice, End::Clear(place));
            }
            3 => {
                self.count("one way");
                wire.lose(way, true);
                self.later(dice, End::Clear(place));
            }
            4 => {
                self.count("late");
                wire.delay(Duration::from_millis(5 + u64::try_from(dice.below(100)).expect("a few")));
                self.later(dice, End::Clear(place));
            }
            5 => {
                self.count("byte by byte");
                wire.drip(true);
                self.later(dice, End::Clear(place));
            }
            6 => {
                self.count("doubled");
                wire.harm(way, Harm::Twice);
            }
            7 => {
                self.count("reordered");
                wire.harm(way, Harm::Swapped);
            }
            _ => {
                self.count("refused");
                wire.refuse(true);
                wire.cut();
                self.later(dice, End::Clear(place));
            }
        }
    }

    fn machine(&mut self, storm: &mut Storm, dice: &mut Dice) {
        let index = dice.below(storm.machines.len());
        let machine = &mut storm.machines[index];
        match dice.below(12) {
            0 | 1 if !machine.frozen => {
                self.count("machine frozen");
                machine.frozen = true;
                signal(storm, Who::Machine(index), Signal::SIGSTOP);
                self.later(dice, End::GoOn(Who::Machine(index)));
            }
            2 | 3 => {
                self.count("machine killed");
                machine.node.kill();
                machine.start(None);
            }
            4 => {
                self.count("journal lost");
                machine.node.kill();
                machine.lose_journal();
                machine.start(None);
            }
            5 => {
                self.count("power lost");
                machine.node.kill();
                machine.lose_power();
                machine.start(None);
            }
            6 | 7 if !machine.frozen => {
                self.count("a second daemon");
                machine.double();
            }
            _ => {
                self.count("machine killed at a step");
                machine.node.kill();
                machine.start(Some(dice.one_of(&STEPS)));
            }
        }
    }

    fn gateway(&mut self, storm: &mut Storm, dice: &mut Dice) {
        let index = dice.below(storm.apart.gateways.len());
        let gateway = &mut storm.apart.gateways[index];
        match dice.below(4) {
            0 => {
                self.count("gateway frozen");
                signal(storm, Who::Gateway(index), Signal::SIGSTOP);
                self.later(dice, End::GoOn(Who::Gateway(index)));
            }
            1 => {
                self.count("gateway restarted");
                gateway.process.signal(Signal::SIGCONT);
                gateway.process.stop();
                gateway.restart();
            }
            _ => {
                self.count("gateway killed");
                gateway.process.kill();
                gateway.restart();
            }
        }
    }

    fn control(&mut self, storm: &mut Storm, dice: &mut Dice) {
        if dice.below(3) == 0 {
            self.count("control plane frozen");
            signal(storm, Who::Control, Signal::SIGSTOP);
            self.later(dice, End::GoOn(Who::Control));
        } else {
            self.count("control plane killed");
            storm.apart.control.process.kill();
            storm.apart.control.restart();
        }
    }

    fn database(&mut self, storm: &Storm, dice: &mut Dice) {
        match dice.below(4) {
            0 => {
                self.count("PostgreSQL killed");
                kill(storm.apart.host().postgres(), Signal::SIGKILL).ok();
            }
            1 => {
                self.count("PostgreSQL restarted");
                kill(storm.apart.host().postgres(), Signal::SIGINT).ok();
            }
            _ => {
                self.count("backends ended");
                storm.apart.end_backends(50);
            }
        }
    }
}

fn wire(storm: &Storm, place: Place) -> &Proxy {
    match place {
        Place::Machine(index) => &storm.machines[index].wire,
        Place::Database(index) => &storm.apart.gateways[index].database,
        Place::Authority(index) => &storm.apart.gateways[index].authority,
        Place::ControlDatabase => &storm.apart.control.database,
    }
}

fn signal(storm: &mut Storm, who: Who, signal: Signal) {
    match who {
        Who::Machine(index) => {
            let machine = &mut storm.machines[index];
            machine.frozen = signal == Signal::SIGSTOP;
            if let Some(daemon) = &machine.node.daemon {
                daemon.signal(signal);
            }
        }
        Who::Gateway(index) => storm.apart.gateways[index].process.signal(signal),
        Who::Control => storm.apart.control.process.signal(signal),
    }
}
