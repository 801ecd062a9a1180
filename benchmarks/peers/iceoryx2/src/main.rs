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

use common::{machine_json, parse_size, percentile, Outcome};

const USAGE: &str = "usage: iceoryx2_ping_pong [-b begin_bytes] [-e end_bytes] [-f factor] \
                     [-n iterations] [-w warm_up] [--mode loan|written]";
/// How often a waiting side looks whether the other process still lives.
const SPINS_PER_CHECK: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Loan,
    Written,
}

#[derive(Clone)]
struct Options {
    begin_bytes: usize,
    end_bytes: usize,
    factor: usize,
    iterations: usize,
    warm_up: usize,
    mode: Mode,
    /// The service prefix of the process that measures; set in the process that answers.
    answer_to: Option<String>,
}

fn parse_options() -> Outcome<Options> {
    let mut options = Options {
        begin_bytes: 1 << 10,
        end_bytes: 1 << 10,
        factor: 2,
        iterations: 0,
        warm_up: 0,
        mode: Mode::Loan,
        answer_to: None,
    };
    let mut end_bytes = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{flag}: no value\n{USAGE}"))?;
        match flag.as_str() {
            "-b" => options.begin_bytes = parse_size(&flag, &value)?,
            "-e" => end_bytes = Some(parse_size(&flag, &value)?),
            "-f" => options.factor = parse_size(&flag, &value)?,
            "-n" => options.iterations = parse_size(&flag, &value)?,
            "-w" => options.warm_up = parse_size(&flag, &value)?,
            "--mode" => {
                options.mode = match value.as_str() {
                    "loan" => Mode::Loan,
                    "written" => Mode::Written,
                    _ => return Err(format!("--mode: '{value}' is not loan or written").into()),
                }
            }
            "--answer-to" => options.answer_to = Some(value),
            _ => return Err(format!("{flag}: unknown flag\n{USAGE}").into()),
        }
    }
    options.end_bytes = end_bytes.unwrap_or(options.begin_bytes);
    if options.factor < 2 || options.end_bytes < options.begin_bytes {
        return Err("-f must be at least 2, and -e not smaller than -b".into());
    }
    Ok(options)
}

impl Options {
    fn sizes_bytes(&self) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(self.begin_bytes), |size| size.checked_mul(self.factor))
            .take_while(|size| *size <= self.end_bytes)
    }

    /// Unless -n says otherwise: 20000 rounds, fewer where every byte of a large size is written.
    fn iterations_for(&self, size_bytes: usize) -> usize {
        match (self.iterations, self.mode) {
            (0, Mode::Loan) => 20000,
            (0, Mode::Written) => ((2 << 30) / size_bytes).clamp(20, 20000),
            (given, _) => given,
        }
    }

    fn warm_up_for(&self, size_bytes: usize) -> usize {
        match self.warm_up {
            0 => (self.iterations_for(size_bytes) / 10).max(3),
            given => given,
        }
    }
}

/// One process's two ends: what it sends on and what it receives from.
struct Ends {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    size_bytes: usize,
    mode: Mode,
}

impl Ends {
    /// Opens `outgoing` and `incoming` and returns when the other process has done the same.
    fn open(
        node: &Node<ipc::Service>,
        (outgoing, incoming): (&str, &str),
        size_bytes: usize,
        mode: Mode,
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
        let (to_other, from_other) = (service(outgoing)?, service(incoming)?);
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
            mode,
        })
    }

    fn send(&self) -> Outcome<()> {
        let mut sample = self.publisher.loan_slice_uninit(self.size_bytes)?;
        if self.mode == Mode::Written {
            sample.payload_mut().fill(std::mem::MaybeUninit::new(1));
        }
        // SAFETY: any bit pattern is a u8, and nobody reads the bytes that `loan` leaves as they
        // were: handing memory over untouched is what that mode measures.
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
    for size_bytes in options.sizes_bytes() {
        let (ping, pong) = service_names(prefix, size_bytes);
        let ends = Ends::open(
            &node,
            (&pong, &ping),
            size_bytes,
            options.mode,
            &mut parent_lives,
        )?;
        for _ in 0..options.warm_up_for(size_bytes) + options.iterations_for(size_bytes) {
            ends.receive(&mut parent_lives)?;
            ends.send()?;
        }
        // The last answer must be taken before its memory goes.
        ends.receive(&mut parent_lives)?;
    }
    Ok(())
}

struct Measured {
    size_bytes: usize,
    p50_us: f64,
    p99_us: f64,
}

fn measure(options: &Options, prefix: &str, child: &mut Child) -> Outcome<Vec<Measured>> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let mut child_lives = || match child.try_wait()? {
        None => Ok(()),
        Some(status) => Err(format!("the answering process has ended: {status}").into()),
    };
    let mut results = Vec::new();
    for size_bytes in options.sizes_bytes() {
        let (ping, pong) = service_names(prefix, size_bytes);
        let ends = Ends::open(
            &node,
            (&ping, &pong),
            size_bytes,
            options.mode,
            &mut child_lives,
        )?;
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
        samples_us.sort_by(f64::total_cmp);
        results.push(Measured {
            size_bytes,
            p50_us: percentile(&samples_us, 0.5),
            p99_us: percentile(&samples_us, 0.99),
        });
    }
    Ok(results)
}

fn print_json(mode: Mode, results: &[Measured]) {
    let mode = if mode == Mode::Loan {
        "loan"
    } else {
        "written"
    };
    println!(
        "{{\"benchmark\": \"iceoryx2_ping_pong\", \"machine\": {},",
        machine_json()
    );
    println!(" \"results\": [");
    for (index, result) in results.iter().enumerate() {
        println!(
            "  {{\"path\": \"iceoryx2\", \"mode\": \"{mode}\", \"size_bytes\": {}, \
             \"latency_us_p50\": {:.6}, \"latency_us_p99\": {:.6}, \
             \"bandwidth_gb_per_s\": {:.6}, \"ratio\": {{}}}}{}",
            result.size_bytes,
            result.p50_us,
            result.p99_us,
            result.size_bytes as f64 / result.p50_us / 1e3,
            if index + 1 == results.len() { "" } else { "," }
        );
    }
    println!("]}}");
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
    print_json(options.mode, &results);
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
