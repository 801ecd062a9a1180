// SPDX-License-Identifier: Apache-2.0
//
//! What the peers in Rust share: sizes on the command line, percentiles and the machine.

pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

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

/// Nearest-rank percentile of a sorted, non-empty slice.
pub fn percentile(sorted: &[f64], quantile: f64) -> f64 {
    let rank = (quantile * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted[rank - 1]
}

pub fn machine_json() -> String {
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
