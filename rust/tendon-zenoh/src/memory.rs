// SPDX-License-Identifier: Apache-2.0
//! Memory that crosses the C ABI, in both ways without a copy.

use std::ffi::c_void;
use std::str::Utf8Error;

use zenoh::bytes::ZBytes;

/// The slice of a pointer that may be null where there are no bytes.
///
/// # Safety
/// `size` bytes at `data` outlive `'a`.
unsafe fn slice<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// Characters of the caller, for the time of the call.
#[repr(C)]
pub struct Text {
    data: *const u8,
    size: usize,
}

impl Text {
    pub fn of(text: &str) -> Text {
        Text { data: text.as_ptr(), size: text.len() }
    }

    pub fn to_str(&self) -> Result<&str, Utf8Error> {
        // SAFETY: the header asks that they live until the call returns.
        std::str::from_utf8(unsafe { slice(self.data, self.size) })
    }
}

/// Memory of the caller, which Zenoh gives back when it is done with it.
#[repr(C)]
pub struct Lent {
    data: *const u8,
    size: usize,
    owner: *mut c_void,
    release: Option<extern "C" fn(*mut c_void)>,
}

// SAFETY: the header asks that it may be read and released by any thread.
unsafe impl Send for Lent {}
unsafe impl Sync for Lent {}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            release(self.owner);
        }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the memory lives until it is released, and is not written to.
        unsafe { slice(self.data, self.size) }
    }
}

impl Lent {
    pub fn into_option(self) -> Option<ZBytes> {
        (self.size > 0).then(|| self.into())
    }
}

impl From<Lent> for ZBytes {
    fn from(lent: Lent) -> ZBytes {
        if lent.size == 0 {
            return ZBytes::new();
        }
        bytes::Bytes::from_owner(lent).into()
    }
}

/// What keeps received memory alive.
pub enum Held {
    Whole(#[allow(dead_code)] ZBytes),
    Joined(#[allow(dead_code)] Vec<u8>),
}

/// Received memory, and what keeps it: null where there are no bytes.
#[repr(C)]
pub struct Received {
    data: *const u8,
    size: usize,
    held: *mut Held,
}

impl Received {
    /// Lends what came in one piece; several pieces are copied into one.
    pub fn of(bytes: Option<&ZBytes>) -> Received {
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
            return Received { data: std::ptr::null(), size: 0, held: std::ptr::null_mut() };
        };
        let (data, size, held) = match bytes.to_bytes() {
            // The memory is not inside of the ZBytes, which shares it: its clone may move.
            std::borrow::Cow::Borrowed(piece) => {
                (piece.as_ptr(), piece.len(), Held::Whole(bytes.clone()))
            }
            std::borrow::Cow::Owned(joined) => {
                (joined.as_ptr(), joined.len(), Held::Joined(joined))
            }
        };
        Received { data, size, held: Box::into_raw(Box::new(held)) }
    }
}
