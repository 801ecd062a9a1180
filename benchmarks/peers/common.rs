// SPDX-License-Identifier: Apache-2.0
//
//! What the peers in Rust share: sizes on the command line, percentiles and the document on stdout.

pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The measured sizes, and the repetitions of each.
#[derive(Clone)]
pub struct Sizes {
    pub begin_bytes: usize,
    end_bytes: usize,
    factor: usize,
    /// None: the program chooses for each size.
    pub iterations: Option<usize>,
    warm_up: Option<usize>,
}

impl Sizes {
    /// Reads -b -e -f -n -w; `more` reads the other flags, and returns whether it knows them.
    pub fn parse(
        usage: &str,
        mut more: impl FnMut(&str, &str) -> Outcome<bool>,
    ) -> Outcome<Self> {
        let (mut begin_bytes, mut end_bytes, mut factor) = (1 << 10, None, 2);
        let (mut iterations, mut warm_up) = (None, None);
        let mut arguments = std::env::args().skip(1);
        while let Some(flag) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("{flag}: no value\n{usage}"))?;
            match flag.as_str() {
                "-b" => begin_bytes = parse_size(&flag, &value)?,
                "-e" => end_bytes = Some(parse_size(&flag, &value)?),
                "-f" => factor = parse_size(&flag, &value)?,
                "-n" => iterations = Some(parse_size(&flag, &value)?),
                "-w" => warm_up = Some(parse_size(&flag, &value)?),
                _ if more(&flag, &value)? => {}
                _ => return Err(format!("{flag}: unknown flag\n{usage}").into()),
            }
        }
        let end_bytes = end_bytes.unwrap_or(begin_bytes);
        if factor < 2 || end_bytes < begin_bytes {
            return Err("-f must be at least 2, and -e not smaller than -b".into());
        }
        Ok(Self {
            begin_bytes,
            end_bytes,
            factor,
            iterations,
            warm_up,
        })
    }

    pub fn each(&self) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(self.begin_bytes), |size| size.checked_mul(self.factor))
            .take_while(|size| *size <= self.end_bytes)
    }

    pub fn warm_up_for(&self, iterations: usize, least: usize) -> usize {
        self.warm_up.unwrap_or((iterations / 10).max(least))
    }
}

pub fn parse_size(flag: &str, text: &str) -> Outcome<usize> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|value| value.checked_mul(unit))
        .filter(|value| (1..=1 << 40).contains(value))
        .ok_or_else(|| format!("{flag}: '{text}' is not a number in 1..2^40 with K, M or G").into())
}

pub struct Measured {
    pub size_bytes: usize,
    pub p50_us: f64,
    pub p99_us: f64,
    pub gb_per_s: Option<f64>,
    pub lost: Option<u64>,
}

impl Measured {
    /// Nearest-rank percentiles of at least one sample.
    pub fn of(size_bytes: usize, mut samples_us: Vec<f64>) -> Self {
        samples_us.sort_by(f64::total_cmp);
        let percentile = |quantile: f64| {
            let rank = (quantile * samples_us.len() as f64).ceil().max(1.0) as usize;
            samples_us[rank - 1]
        };
        let p50_us = percentile(0.5);
        Self {
            size_bytes,
            p50_us,
            p99_us: percentile(0.99),
            gb_per_s: Some(size_bytes as f64 / p50_us / 1e3),
            lost: None,
        }
    }
}

fn machine_json() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    format!(
        "{{\"cpu\": \"{cpu}\", \"cores\": {cores}, \"kernel\": \"Linux {}\"}}",
        kernel.trim_end()
    )
}

/// The document that every benchmark of Tendon prints.
pub fn print_json(benchmark: &str, path: &str, mode: &str, results: &[Measured]) {
    println!("{{\"benchmark\": \"{benchmark}\", \"machine\": {},", machine_json());
    println!(" \"results\": [");
    for (index, result) in results.iter().enumerate() {
        let lost = result.lost.map_or(String::new(), |lost| format!("\"lost\": {lost}, "));
        let rate = result.gb_per_s.map_or("null".to_owned(), |rate| format!("{rate:.6}"));
        println!(
            "  {{\"path\": \"{path}\", \"mode\": \"{mode}\", \"size_bytes\": {}, \
             \"latency_us_p50\": {:.6}, \"latency_us_p99\": {:.6}, \
             \"bandwidth_gb_per_s\": {rate}, {lost}\"ratio\": {{}}}}{}",
            result.size_bytes,
            result.p50_us,
            result.p99_us,
            if index + 1 == results.len() { "" } else { "," }
        );
    }
    println!("]}}");
}

/// Ends the process, with the error if there is one.
pub fn end(outcome: Outcome<()>) {
    if let Err(error) = outcome {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
