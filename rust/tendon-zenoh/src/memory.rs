// SPDX-License-Identifier: Apache-2.0
//! Memory that crosses the C ABI in both directions without a copy.

use std::ffi::c_void;
use std::str::Utf8Error;

use zenoh::bytes::ZBytes;

/// Makes a slice of a pointer, which may be null if there are no bytes.
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

/// Characters of the caller, valid until the call returns.
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
        // SAFETY: the header requires that they live until the call returns.
        std::str::from_utf8(unsafe { slice(self.data, self.size) })
    }
}

/// Memory of the caller, which Zenoh releases when it is done with it.
#[repr(C)]
pub struct Lent {
    data: *const u8,
    size: usize,
    owner: *mut c_void,
    release: Option<extern "C" fn(*mut c_void)>,
}

// SAFETY: the header requires that any thread may read and release it.
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
        // SAFETY: the memory lives until it is released, and nobody writes to it.
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

/// The owner that keeps received memory alive.
pub enum Held {
    Whole(#[allow(dead_code)] ZBytes),
    Joined(#[allow(dead_code)] Vec<u8>),
}

/// Received memory and its owner, both null if there are no bytes.
#[repr(C)]
pub struct Received {
    data: *const u8,
    size: usize,
    held: *mut Held,
}

impl Received {
    /// Lends bytes that arrived in one piece; copies several pieces into one.
    pub fn of(bytes: Option<&ZBytes>) -> Received {
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
            return Received { data: std::ptr::null(), size: 0, held: std::ptr::null_mut() };
        };
        let (data, size, held) = match bytes.to_bytes() {
            // The ZBytes shares the memory and does not contain it, so its clone may move.
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
