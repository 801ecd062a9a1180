// SPDX-License-Identifier: Apache-2.0
//! The part of Zenoh that Tendon uses, as a C ABI. The manual is the header, tendon_zenoh.h.
//!
//! No panic leaves a function: it becomes a failure. One function releases every declaration and
//! every request.

mod memory;
mod session;

use std::borrow::Cow;
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use memory::{Lent, Received, Text};
use session::Session;
use zenoh::bytes::ZBytes;
use zenoh::cancellation::CancellationToken;
use zenoh::key_expr::KeyExpr;
use zenoh::liveliness::LivelinessToken;
use zenoh::matching::{MatchingListener, MatchingStatus};
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::{CongestionControl, Priority};
use zenoh::query::{ConsolidationMode, Query, QueryTarget, Queryable, Reply, ReplyKeyExpr};
use zenoh::sample::{Locality, Sample, SampleKind};
use zenoh::Wait;

/// The reason of a failed call: text that is cut to the room.
#[repr(C)]
pub struct Failure {
    size: usize,
    text: [u8; 512],
}

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

const OK: i32 = 0;
const FAILED: i32 = 1;
const BAD_CONFIG: i32 = 2;

/// Runs `what`; writes an error or a panic to `failure`.
fn guarded(failure: *mut Failure, what: impl FnOnce() -> Outcome) -> i32 {
    let text = match catch_unwind(AssertUnwindSafe(what)) {
        Ok(Ok(())) => return OK,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "a panic inside of Zenoh".to_string(),
    };
    // SAFETY: the pointer is null, or valid until the call returns.
    if let Some(failure) = unsafe { failure.as_mut() } {
        failure.size = text.len().min(failure.text.len());
        failure.text[..failure.size].copy_from_slice(&text.as_bytes()[..failure.size]);
    }
    FAILED
}

/// Runs `what`, which has no error to report: a panic ends it early.
fn quietly(what: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(what));
}

/// A caller's context, and the function that releases it.
#[repr(C)]
pub struct Context {
    data: *mut c_void,
    drop: Option<extern "C" fn(*mut c_void)>,
}

// SAFETY: the header requires that any thread may use and drop it.
unsafe impl Send for Context {}
unsafe impl Sync for Context {}

impl Context {
    fn data(&self) -> *mut c_void {
        self.data
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            drop(self.data);
        }
    }
}

/// Reports the end of a request when Zenoh drops its callback.
struct Request {
    context: Context,
    on_end: extern "C" fn(*mut c_void, i32),
    failed: AtomicBool,
}

impl Drop for Request {
    fn drop(&mut self) {
        (self.on_end)(self.context.data(), i32::from(self.failed.load(Ordering::Acquire)));
    }
}

/// A publisher, and the listener that reports whether it has subscribers, which ends first.
pub struct Publication {
    #[allow(dead_code)]
    matching: MatchingListener<()>,
    publisher: Publisher<'static>,
}

/// A declaration or a request; its drop withdraws it.
pub enum Declared {
    Token(#[allow(dead_code)] LivelinessToken),
    Subscriber(#[allow(dead_code)] Subscriber<()>),
    Queryable(#[allow(dead_code)] Queryable<()>),
    Publisher(Publication),
    Request(CancellationToken),
}

impl Drop for Declared {
    fn drop(&mut self) {
        if let Declared::Request(token) = self {
            let _ = token.cancel().wait();
        }
    }
}

fn give(declared: *mut *mut Declared, what: Declared) -> Outcome {
    // SAFETY: the header requires a valid place to write to.
    unsafe { *declared = Box::into_raw(Box::new(what)) };
    Ok(())
}

fn key_of(key: &Text) -> Result<KeyExpr<'static>, Box<dyn std::error::Error + Send + Sync>> {
    Ok(KeyExpr::new(key.to_str()?.to_owned())?)
}

static PUTS: AtomicU64 = AtomicU64::new(0);

/// # Safety
/// As the header says.
#[no_mangle]
pub extern "C" fn tendon_zenoh_puts() -> u64 {
    PUTS.load(Ordering::Relaxed)
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_open(
    config: Text,
    changes: *const session::Change,
    change_count: usize,
    context: Context,
    on_state: extern "C" fn(*mut c_void, i32),
    opened: *mut *mut Session,
    failure: *mut Failure,
) -> i32 {
    let mut config_is_read = false;
    let outcome = guarded(failure, || {
        let changes =
            if change_count == 0 { &[] } else { std::slice::from_raw_parts(changes, change_count) };
        let config = session::config_of(&config, changes)?;
        config_is_read = true;
        *opened = Box::into_raw(Box::new(Session::open(config, context, on_state)?));
        Ok(())
    });
    if outcome != OK && !config_is_read {
        return BAD_CONFIG;
    }
    outcome
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_close(session: *mut Session, timeout_ms: u64) -> i32 {
    let mut in_time = FAILED;
    quietly(|| {
        if Box::from_raw(session).close(Duration::from_millis(timeout_ms)) {
            in_time = OK;
        }
    });
    in_time
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_losses(session: *const Session) -> u64 {
    let mut losses = u64::MAX;
    quietly(|| losses = (*session).losses());
    losses
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_token(
    session: *const Session,
    key: Text,
    declared: *mut *mut Declared,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, || {
        let token = (*session).zenoh().liveliness().declare_token(key_of(&key)?).wait()?;
        give(declared, Declared::Token(token))
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_watch(
    session: *const Session,
    pattern: Text,
    context: Context,
    on_token: extern "C" fn(*mut c_void, i32, Text),
    declared: *mut *mut Declared,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let callback = move |sample: Sample| {
            let came = i32::from(sample.kind() == SampleKind::Put);
            on_token(context.data(), came, Text::of(sample.key_expr().as_str()));
        };
        // Asks for no history: a get() that is made together with it would end without the keys
        // of the history (zenoh 1.10.2).
        let watch = (*session)
            .zenoh()
            .liveliness()
            .declare_subscriber(key_of(&pattern)?)
            .callback(callback)
            .wait()?;
        give(declared, Declared::Subscriber(watch))
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_get(
    session: *const Session,
    pattern: Text,
    timeout_ms: u64,
    context: Context,
    on_key: extern "C" fn(*mut c_void, Text),
    on_end: extern "C" fn(*mut c_void, i32),
    declared: *mut *mut Declared,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let request = Request { context, on_end, failed: AtomicBool::new(false) };
        let callback = move |reply: Reply| match reply.result() {
            Ok(sample) => on_key(request.context.data(), Text::of(sample.key_expr().as_str())),
            Err(_) => request.failed.store(true, Ordering::Release),
        };
        let token = CancellationToken::default();
        (*session)
            .zenoh()
            .liveliness()
            .get(key_of(&pattern)?)
            .timeout(Duration::from_millis(timeout_ms))
            .cancellation_token(token.clone())
            .callback(callback)
            .wait()?;
        give(declared, Declared::Request(token))
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_put(
    session: *const Session,
    key: Text,
    encoding: Text,
    payload: Lent,
    attachment: Lent,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let payload: ZBytes = payload.into();
        (*session)
            .zenoh()
            .put(key_of(&key)?, payload)
            .encoding(encoding.to_str()?)
            .attachment(attachment.into_option())
            // The other kind waits for seconds, and then closes the connection.
            .congestion_control(CongestionControl::Drop)
            .wait()?;
        PUTS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_delete(
    session: *const Session,
    key: Text,
    attachment: Lent,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        (*session)
            .zenoh()
            .delete(key_of(&key)?)
            .attachment(attachment.into_option())
            .congestion_control(CongestionControl::Drop)
            .wait()?;
        PUTS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_put_patiently(
    session: *const Session,
    key: Text,
    payload: Lent,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let payload: ZBytes = payload.into();
        (*session)
            .zenoh()
            .put(key_of(&key)?, payload)
            .congestion_control(CongestionControl::Block)
            .priority(Priority::DataLow)
            .wait()?;
        PUTS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_publisher(
    session: *const Session,
    key: Text,
    own_too: i32,
    context: Context,
    on_matching: extern "C" fn(*mut c_void, i32),
    declared: *mut *mut Declared,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let publisher = (*session)
            .zenoh()
            .declare_publisher(key_of(&key)?)
            // The other kind waits for seconds, and then closes the connection.
            .congestion_control(CongestionControl::Drop)
            .allowed_destination(if own_too == 0 { Locality::Remote } else { Locality::Any })
            .wait()?;
        let callback = move |status: MatchingStatus| {
            on_matching(context.data(), i32::from(status.matching()));
        };
        let matching = publisher.matching_listener().callback(callback).wait()?;
        give(declared, Declared::Publisher(Publication { matching, publisher }))
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_publisher_matches(publisher: *const Declared) -> i32 {
    let mut matches = 0;
    quietly(|| {
        if let Declared::Publisher(publication) = &*publisher {
            let status = publication.publisher.matching_status().wait();
            matches = i32::from(status.is_ok_and(|status| status.matching()));
        }
    });
    matches
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_publisher_put(
    publisher: *const Declared,
    encoding: Text,
    payload: Lent,
    attachment: Lent,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let Declared::Publisher(publication) = &*publisher else {
            return Err("what was declared is no publisher".into());
        };
        let payload: ZBytes = payload.into();
        publication
            .publisher
            .put(payload)
            .encoding(encoding.to_str()?)
            .attachment(attachment.into_option())
            .wait()?;
        PUTS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

type OnMessage = extern "C" fn(*mut c_void, i32, Text, Text, Received, Received);

fn tell(context: &Context, on_message: OnMessage, sample: &Sample) {
    let encoding = Cow::from(sample.encoding());
    on_message(
        context.data(),
        i32::from(sample.kind() == SampleKind::Delete),
        Text::of(sample.key_expr().as_str()),
        Text::of(&encoding),
        Received::of(Some(sample.payload())),
        Received::of(sample.attachment()),
    );
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_subscribe(
    session: *const Session,
    pattern: Text,
    context: Context,
    on_message: OnMessage,
    declared: *mut *mut Declared,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let subscriber = (*session)
            .zenoh()
            .declare_subscriber(key_of(&pattern)?)
            .callback(move |sample: Sample| tell(&context, on_message, &sample))
            .wait()?;
        give(declared, Declared::Subscriber(subscriber))
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_query(
    session: *const Session,
    key: Text,
    payload: Lent,
    attachment: Lent,
    timeout_ms: u64,
    context: Context,
    on_answer: OnMessage,
    on_end: extern "C" fn(*mut c_void, i32),
    declared: *mut *mut Declared,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let request = Request { context, on_end, failed: AtomicBool::new(false) };
        let callback = move |reply: Reply| match reply.result() {
            Ok(sample) => tell(&request.context, on_answer, sample),
            Err(_) => request.failed.store(true, Ordering::Release),
        };
        let token = CancellationToken::default();
        let payload: ZBytes = payload.into();
        (*session)
            .zenoh()
            .get(key_of(&key)?)
            .payload(payload)
            .attachment(attachment.into_option())
            .target(QueryTarget::All)
            .consolidation(ConsolidationMode::None)
            .accept_replies(ReplyKeyExpr::Any)
            .timeout(Duration::from_millis(timeout_ms))
            .cancellation_token(token.clone())
            .callback(callback)
            .wait()?;
        give(declared, Declared::Request(token))
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_answer(
    session: *const Session,
    key: Text,
    context: Context,
    on_question: extern "C" fn(*mut c_void, *mut Query, Text, Received, Received),
    declared: *mut *mut Declared,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let callback = move |query: Query| {
            let query = Box::new(query);
            let payload = Received::of(query.payload());
            let attachment = Received::of(query.attachment());
            let query = Box::into_raw(query);
            // SAFETY: the callback owns the query from now on, and keeps it until it returns.
            let key = Text::of(unsafe { &*query }.key_expr().as_str());
            on_question(context.data(), query, key, payload, attachment);
        };
        let queryable =
            (*session).zenoh().declare_queryable(key_of(&key)?).callback(callback).wait()?;
        give(declared, Declared::Queryable(queryable))
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_reply(
    question: *const Query,
    key: Text,
    payload: Lent,
    attachment: Lent,
    failure: *mut Failure,
) -> i32 {
    guarded(failure, move || {
        let payload: ZBytes = payload.into();
        (*question).reply(key_of(&key)?, payload).attachment(attachment.into_option()).wait()?;
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_question_drop(question: *mut Query) {
    quietly(|| drop(Box::from_raw(question)));
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_undeclare(declared: *mut Declared) {
    quietly(|| drop(Box::from_raw(declared)));
}

/// # Safety
/// As the header says.
#[no_mangle]
pub unsafe extern "C" fn tendon_zenoh_held_drop(held: *mut memory::Held) {
    quietly(|| drop(Box::from_raw(held)));
}
