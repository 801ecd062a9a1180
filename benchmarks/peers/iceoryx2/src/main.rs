// SPDX-License-Identifier: Apache-2.0
//
//! Publish-subscribe ping-pong of loans between two processes; one way is half a round.
//!
//! `loan` hands samples over untouched, `written` fills every byte before each send. Both sides
//! spin. Prints the JSON document that every benchmark of Tendon prints.

#[path = "../../common.rs"]
mod common;

use std::process::{Child, Command};
use std::time::Instant;

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use common::{print_json, Measured, Outcome, Sizes};

const USAGE: &str = "usage: iceoryx2_ping_pong [-b begin_bytes] [-e end_bytes] [-f factor] \
                     [-n iterations] [-w warm_up] [--mode loan|written]";
/// The spins of a waiting side between two checks whether the other process lives.
const SPINS_PER_CHECK: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Loan,
    Written,
}

struct Options {
    sizes: Sizes,
    mode: Mode,
    /// The service prefix of the process that measures; set in the process that answers.
    answer_to: Option<String>,
}

fn parse_options() -> Outcome<Options> {
    let (mut mode, mut answer_to) = (Mode::Loan, None);
    let sizes = Sizes::parse(USAGE, |flag, value| {
        match (flag, value) {
            ("--mode", "loan") => mode = Mode::Loan,
            ("--mode", "written") => mode = Mode::Written,
            ("--mode", _) => return Err(format!("--mode: '{value}' is not loan or written").into()),
            ("--answer-to", _) => answer_to = Some(value.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Options {
        sizes,
        mode,
        answer_to,
    })
}

impl Options {
    /// Without -n: 20000 rounds, fewer if every byte of a large size is written.
    fn iterations_for(&self, size_bytes: usize) -> usize {
        self.sizes.iterations.unwrap_or(match self.mode {
            Mode::Loan => 20000,
            Mode::Written => ((2 << 30) / size_bytes).clamp(20, 20000),
        })
    }

    fn warm_up_for(&self, size_bytes: usize) -> usize {
        self.sizes.warm_up_for(self.iterations_for(size_bytes), 3)
    }
}

/// The two ends of one process: a publisher and a subscriber.
struct Ends {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    size_bytes: usize,
    mode: Mode,
}

impl Ends {
    /// Opens both services of a size and returns when the other process has done the same.
    fn open(
        node: &Node<ipc::Service>,
        options: &Options,
        (outgoing, incoming): (String, String),
        size_bytes: usize,
        other_lives: &mut dyn FnMut() -> Outcome<()>,
    ) -> Outcome<Self> {
        let service = |name: &str| -> Outcome<_> {
            Ok(node
                .service_builder(&name.try_into()?)
                .publish_subscribe::<[u8]>()
                .max_publishers(1)
                .max_subscribers(1)
                .subscriber_max_buffer_size(1)
                .subscriber_max_borrowed_samples(1)
                .open_or_create()?)
        };
        let (to_other, from_other) = (service(&outgoing)?, service(&incoming)?);
        let subscriber = from_other.subscriber_builder().create()?;
        let publisher = to_other
            .publisher_builder()
            .initial_max_slice_len(size_bytes)
            .max_loaned_samples(1)
            .create()?;
        while to_other.dynamic_config().number_of_subscribers() == 0
            || from_other.dynamic_config().number_of_publishers() == 0
        {
            other_lives()?;
            std::thread::yield_now();
        }
        Ok(Self {
            publisher,
            subscriber,
            size_bytes,
            mode: options.mode,
        })
    }

    fn send(&self) -> Outcome<()> {
        let mut sample = self.publisher.loan_slice_uninit(self.size_bytes)?;
        if self.mode == Mode::Written {
            sample.payload_mut().fill(std::mem::MaybeUninit::new(1));
        }
        // SAFETY: any bit pattern is a u8, and the bytes that `loan` leaves unchanged are not read:
        // that mode measures a hand-over of untouched memory.
        unsafe { sample.assume_init() }.send()?;
        Ok(())
    }

    fn receive(&self, other_lives: &mut dyn FnMut() -> Outcome<()>) -> Outcome<()> {
        for spins in 1u64.. {
            if self.subscriber.receive()?.is_some() {
                return Ok(());
            }
            if spins % SPINS_PER_CHECK == 0 {
                other_lives()?;
            }
        }
        unreachable!("2^64 spins")
    }
}

fn service_names(prefix: &str, size_bytes: usize) -> (String, String) {
    (
        format!("{prefix}/{size_bytes}/ping"),
        format!("{prefix}/{size_bytes}/pong"),
    )
}

fn answer(options: &Options, prefix: &str) -> Outcome<()> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let parent = std::os::unix::process::parent_id();
    let mut parent_lives = || match std::os::unix::process::parent_id() == parent {
        true => Ok(()),
        false => Err("the measuring process has ended".into()),
    };
    for size_bytes in options.sizes.each() {
        let (ping, pong) = service_names(prefix, size_bytes);
        let ends = Ends::open(&node, options, (pong, ping), size_bytes, &mut parent_lives)?;
        for _ in 0..options.warm_up_for(size_bytes) + options.iterations_for(size_bytes) {
            ends.receive(&mut parent_lives)?;
            ends.send()?;
        }
        // Takes the last answer before its memory is released.
        ends.receive(&mut parent_lives)?;
    }
    Ok(())
}

fn measure(options: &Options, prefix: &str, child: &mut Child) -> Outcome<Vec<Measured>> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let mut child_lives = || match child.try_wait()? {
        None => Ok(()),
        Some(status) => Err(format!("the answering process has ended: {status}").into()),
    };
    let mut results = Vec::new();
    for size_bytes in options.sizes.each() {
        let (ping, pong) = service_names(prefix, size_bytes);
        let ends = Ends::open(&node, options, (ping, pong), size_bytes, &mut child_lives)?;
        let warm_up = options.warm_up_for(size_bytes);
        let mut samples_us = Vec::with_capacity(warm_up + options.iterations_for(size_bytes));
        let mut previous = Instant::now();
        for round in 0..samples_us.capacity() {
            ends.send()?;
            ends.receive(&mut child_lives)?;
            let now = Instant::now();
            if round >= warm_up {
                samples_us.push((now - previous).as_secs_f64() * 1e6 / 2.0);
            }
            previous = now;
        }
        ends.send()?;
        results.push(Measured::of(size_bytes, samples_us));
    }
    Ok(results)
}

fn run() -> Outcome<()> {
    set_log_level(LogLevel::Error);
    let options = parse_options()?;
    if let Some(prefix) = &options.answer_to {
        return answer(&options, prefix);
    }
    let prefix = format!("ping_pong/{}", std::process::id());
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args().skip(1))
        .args(["--answer-to", &prefix])
        .spawn()?;
    let measured = measure(&options, &prefix, &mut child);
    if measured.is_err() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    let results = measured?;
    if !status.success() {
        return Err(format!("the answering process has failed: {status}").into());
    }
    let mode = match options.mode {
        Mode::Loan => "loan",
        Mode::Written => "written",
    };
    print_json("iceoryx2_ping_pong", "iceoryx2", mode, &results);
    Ok(())
}

fn main() {
    common::end(run());
}
