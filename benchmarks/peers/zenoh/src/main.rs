// SPDX-License-Identifier: Apache-2.0
//
//! A topic of bare Zenoh: a publisher here and subscribers in a second process, each with a session
//! of its own, over a unix socket; with `--at` over another endpoint, and with `--router` both are
//! clients of a router. `--readers-by` is a command that executes the second process.
//!
//! `ping` publishes one sample at a time; the last of the subscribers to get it replies with 8
//! bytes, from its callback. One way is half a round. `put` publishes all samples, with Zenoh's
//! default of dropping what a connection cannot take; `block` makes the publisher wait instead. The
//! rate of both counts the samples that arrived, and `lost` those that did not. `join` is the time
//! from the opening of a session until the first sample, while the second process puts one every
//! millisecond. Prints the JSON document that every benchmark of Tendon prints.

#[path = "../../common.rs"]
mod common;

use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait};

use common::{parse_size, print_json, Measured, Outcome, Sizes};

const USAGE: &str = "usage: zenoh_topic [-b begin_bytes] [-e end_bytes] [-f factor] \
                     [-n iterations] [-w warm_up] [--mode ping|put|block|join] [--readers N] \
                     [--at ENDPOINT] [--router ENDPOINT] [--readers-by COMMAND]";
const PATIENCE: Duration = Duration::from_secs(60);
/// The subscribers send this when each has the sample; other words are counts.
const ALL_HAVE_IT: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Ping,
    Put,
    Block,
    Join,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Ping => "ping",
            Mode::Put => "put",
            Mode::Block => "block",
            Mode::Join => "join",
        }
    }
}

struct Options {
    sizes: Sizes,
    readers: u64,
    mode: Mode,
    /// The address where one of the two processes listens; None: a unix socket.
    at: Option<String>,
    /// Both processes are clients of this router, and neither listens.
    router: Option<String>,
    /// The command that executes the second process.
    readers_by: Vec<String>,
    answers: bool,
}

fn parse_options() -> Outcome<Options> {
    let (mut readers, mut mode, mut answers) = (1, Mode::Ping, false);
    let (mut at, mut router, mut readers_by) = (None, None, Vec::new());
    let sizes = Sizes::parse(USAGE, |flag, value| {
        match flag {
            "--readers" => readers = parse_size(flag, value)? as u64,
            "--mode" => {
                mode = *[Mode::Ping, Mode::Put, Mode::Block, Mode::Join]
                    .iter()
                    .find(|mode| mode.name() == value)
                    .ok_or_else(|| format!("--mode: there is no '{value}'"))?
            }
            "--at" => at = Some(value.to_owned()),
            "--router" => router = Some(value.to_owned()),
            "--readers-by" => readers_by = value.split_whitespace().map(str::to_owned).collect(),
            "--answers" => answers = value == "yes",
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Options {
        sizes,
        readers,
        mode,
        at,
        router,
        readers_by,
        answers,
    })
}

impl Options {
    /// Without -n: about 1 GiB of traffic, as in `tendon bench topic`.
    fn iterations_for(&self, size_bytes: usize) -> usize {
        self.sizes.iterations.unwrap_or(((1 << 30) / size_bytes).clamp(20, 20000))
    }

    fn warm_up_for(&self, size_bytes: usize) -> usize {
        self.sizes.warm_up_for(self.iterations_for(size_bytes), 5)
    }
}

#[derive(Clone, Copy)]
enum Role {
    Listens,
    Connects,
}

fn open(options: &Options, role: Role, at: &str) -> Outcome<Session> {
    let (mode, way, endpoint) = match (&options.router, role) {
        (Some(router), _) => ("client", "connect", router.as_str()),
        (None, Role::Listens) => ("peer", "listen", at),
        // A joining session needs no more than a client does.
        (None, Role::Connects) if options.mode == Mode::Join => ("client", "connect", at),
        (None, Role::Connects) => ("peer", "connect", at),
    };
    let config = format!(
        "{{mode: '{mode}', {way}: {{endpoints: ['{endpoint}']}}, \
         scouting: {{multicast: {{enabled: false}}, gossip: {{enabled: false}}}}}}"
    );
    zenoh::open(Config::from_json5(&config)?).wait()
}

fn wait_until(otherwise: &str, mut is_so: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > PATIENCE {
            return Err(otherwise.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns once a subscriber matches its key.
fn matched(publisher: &Publisher) -> Outcome<()> {
    wait_until("nobody subscribes", || Ok(publisher.matching_status().wait()?.matching()))
}

/// Runs in the second process until it gets `bye`.
fn answer(options: &Options, at: &str) -> Outcome<()> {
    let back = open(options, Role::Connects, at)?;
    let pong = Arc::new(back.declare_publisher("pong").wait()?);
    let got = Arc::new(AtomicU64::new(0));
    let readers = options.readers;
    let replies = options.mode == Mode::Ping;
    let mut kept = Vec::new();
    for _ in 0..readers {
        let session = open(options, Role::Connects, at)?;
        let (pong, got) = (pong.clone(), got.clone());
        let on_sample = move |_: Sample| {
            let count = got.fetch_add(1, Ordering::AcqRel) + 1;
            if replies && count % readers == 0 {
                let _ = pong.put(ALL_HAVE_IT.to_le_bytes().as_slice()).wait();
            }
        };
        let subscriber = session.declare_subscriber("ping").callback(on_sample).wait()?;
        kept.push((session, subscriber));
    }
    let (said, end) = mpsc::channel();
    // The first subscriber's session receives this message after all samples for it.
    let counted = kept[0].0.declare_subscriber("end").callback(move |sample: Sample| {
        let _ = said.send(sample.payload().len());
    });
    let _counted = counted.wait()?;
    matched(&pong)?;
    pong.put([1u8; 8].as_slice()).wait()?;
    // One byte asks for the count; two bytes mean bye.
    while end.recv_timeout(PATIENCE)? == 1 {
        let count = got.swap(0, Ordering::AcqRel);
        pong.put(count.to_le_bytes().as_slice()).wait()?;
    }
    Ok(())
}

fn measure_ping(
    options: &Options,
    size_bytes: usize,
    ping: &Publisher,
    pongs: &mpsc::Receiver<u64>,
) -> Outcome<Measured> {
    let payload = vec![1u8; size_bytes];
    let warm_up = options.warm_up_for(size_bytes);
    let mut samples_us = Vec::new();
    for round in 0..warm_up + options.iterations_for(size_bytes) {
        let begun = Instant::now();
        ping.put(payload.as_slice()).wait()?;
        pongs.recv_timeout(PATIENCE)?;
        if round >= warm_up {
            samples_us.push(begun.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
    }
    Ok(Measured::of(size_bytes, samples_us))
}

/// Returns once a sample reaches every subscriber: the publisher learns of them one by one.
fn reaches_all(
    options: &Options,
    ping: &Publisher,
    end: &Publisher,
    pongs: &mpsc::Receiver<u64>,
) -> Outcome<()> {
    let count = || -> Outcome<u64> {
        end.put([0u8; 1].as_slice()).wait()?;
        loop {
            match pongs.recv_timeout(PATIENCE)? {
                ALL_HAVE_IT => continue,
                count => return Ok(count),
            }
        }
    };
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        ping.put([1u8; 8].as_slice()).wait()?;
        if count()? == options.readers {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
        count()?;
    }
    Err("not every subscriber is reached".into())
}

/// Each sample copies the program's bytes, as its publisher would.
fn measure_put(
    options: &Options,
    size_bytes: usize,
    ping: &Publisher,
    end: &Publisher,
    pongs: &mpsc::Receiver<u64>,
) -> Outcome<Measured> {
    let payload = vec![1u8; size_bytes];
    let count = options.iterations_for(size_bytes);
    let run = |count: usize| -> Outcome<(u64, f64)> {
        let begun = Instant::now();
        for _ in 0..count {
            ping.put(payload.as_slice()).wait()?;
        }
        end.put([0u8; 1].as_slice()).wait()?;
        Ok((pongs.recv_timeout(PATIENCE)?, begun.elapsed().as_secs_f64()))
    };
    run(options.warm_up_for(size_bytes))?;
    let (came, took_s) = run(count)?;
    let moved = came as f64 / options.readers as f64 * size_bytes as f64;
    Ok(Measured {
        size_bytes,
        p50_us: took_s * 1e6 / count as f64,
        p99_us: took_s * 1e6 / count as f64,
        gb_per_s: Some(moved / took_s / 1e9),
        lost: Some((count as u64 * options.readers).saturating_sub(came)),
    })
}

/// Publishes in the second process until it is killed, or until a time limit in case the parent was
/// killed before.
fn put_for_ever(options: &Options, at: &str) -> Outcome<()> {
    let session = open(options, Role::Listens, at)?;
    let ping = session.declare_publisher("ping").wait()?;
    let payload = vec![1u8; options.sizes.begin_bytes];
    let begun = Instant::now();
    while begun.elapsed() < 2 * PATIENCE {
        ping.put(payload.as_slice()).wait()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn measure_joins(options: &Options, at: &str) -> Outcome<Vec<Measured>> {
    // Waits for the listener: a refused session would retry a second later, which is not to be
    // measured.
    wait_until("the other process does not listen", || {
        Ok(open(options, Role::Connects, at).is_ok())
    })?;
    let mut joins_us = Vec::new();
    for _ in 0..options.sizes.iterations.unwrap_or(1) {
        let begun = Instant::now();
        let session = open(options, Role::Connects, at)?;
        let (came, samples) = mpsc::channel();
        let subscriber = session
            .declare_subscriber("ping")
            .callback(move |_: Sample| {
                let _ = came.send(());
            })
            .wait()?;
        samples.recv_timeout(PATIENCE)?;
        joins_us.push(begun.elapsed().as_secs_f64() * 1e6);
        subscriber.undeclare().wait()?;
        session.close().wait()?;
    }
    let joins = Measured::of(options.sizes.begin_bytes, joins_us);
    Ok(vec![Measured {
        gb_per_s: None,
        ..joins
    }])
}

fn measure(options: &Options, at: &str, child: &mut Child) -> Outcome<Vec<Measured>> {
    let session = open(options, Role::Listens, at)?;
    let (came, pongs) = mpsc::channel();
    let _pong = session
        .declare_subscriber("pong")
        .callback(move |sample: Sample| {
            let bytes = sample.payload().to_bytes();
            let word = bytes.as_ref().try_into().map_or(0, u64::from_le_bytes);
            let _ = came.send(word);
        })
        .wait()?;
    let congestion = match options.mode {
        Mode::Block => CongestionControl::Block,
        _ => CongestionControl::DEFAULT,
    };
    let ping = session.declare_publisher("ping").congestion_control(congestion).wait()?;
    let end = session
        .declare_publisher("end")
        .congestion_control(CongestionControl::Block)
        .wait()?;
    // The first message arrives when every subscriber is ready.
    while let Err(waited) = pongs.recv_timeout(Duration::from_millis(100)) {
        if let Some(status) = child.try_wait()? {
            return Err(format!("the answering process has ended: {status}").into());
        }
        if waited == mpsc::RecvTimeoutError::Disconnected {
            return Err(waited.into());
        }
    }
    matched(&ping)?;
    matched(&end)?;
    reaches_all(options, &ping, &end, &pongs)?;
    let mut results = Vec::new();
    for size_bytes in options.sizes.each() {
        results.push(match options.mode {
            Mode::Ping => measure_ping(options, size_bytes, &ping, &pongs)?,
            _ => measure_put(options, size_bytes, &ping, &end, &pongs)?,
        });
    }
    end.put([0u8; 2].as_slice()).wait()?;
    Ok(results)
}

fn run() -> Outcome<()> {
    let options = parse_options()?;
    let socket = std::env::temp_dir().join(format!("zenoh_topic_{}.sock", std::process::id()));
    let socket = socket.to_str().ok_or("the temporary directory is not UTF-8")?.to_owned();
    let at = options.at.clone().unwrap_or(format!("unixsock-stream/{socket}"));
    if options.answers {
        return match options.mode {
            Mode::Join => put_for_ever(&options, &at),
            _ => answer(&options, &at),
        };
    }
    let this = std::env::current_exe()?.into_os_string();
    let mut words: Vec<_> = options.readers_by.iter().map(Into::into).collect();
    words.push(this);
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .args(std::env::args().skip(1))
        .args(["--at", &at, "--answers", "yes"])
        .spawn()?;
    let measured = match options.mode {
        Mode::Join => measure_joins(&options, &at),
        _ => measure(&options, &at, &mut child),
    };
    let never_ends = options.mode == Mode::Join;
    if measured.is_err() || never_ends {
        let _ = child.kill();
    }
    let status = child.wait()?;
    let _ = std::fs::remove_file(&socket);
    let measured = measured?;
    if !status.success() && !never_ends {
        return Err(format!("the answering process failed: {status}").into());
    }
    let mode = format!("{} {}", options.mode.name(), options.readers);
    print_json("zenoh_topic", "zenoh", &mode, &measured);
    Ok(())
}

fn main() {
    common::end(run());
}
