//! Memory that holds addresses of other memory, for system calls that take arrays of headers.
//!
//! A `Vec` is not sufficient: references into it, made for safe code, would forbid the kernel to write where the headers point.

use std::ptr::NonNull;

/// An array on the heap that is accessed only by raw pointers, so that other memory may hold pointers into it.
pub(super) struct Memory<T> {
    start: NonNull<T>,
    length: usize,
}

impl<T: Copy> Memory<T> {
    pub(super) fn new(values: Vec<T>) -> Self {
        let length = values.len();
        let start = Box::into_raw(values.into_boxed_slice()).cast::<T>();
        Memory { start: NonNull::new(start).expect("a box is not null"), length }
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    #[inline]
    pub(super) fn at(&self, index: usize) -> *mut T {
        assert!(index < self.length);
        // SAFETY: the index lies within the array that `start` begins.
        unsafe { self.start.as_ptr().add(index) }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> &T {
        // SAFETY: `at` points at an element that was initialized by `new`. Elements are changed only through `&mut self`
        // or by the kernel in a call for which the owner, who has `&mut self` then, hands out their addresses; so nothing
        // changes it while this reference lives.
        unsafe { &*self.at(index) }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as in `get`, and `&mut self` guarantees that there is no other reference.
        unsafe { &mut *self.at(index) }
    }

    #[inline]
    pub(super) fn set(&mut self, index: usize, value: T) {
        *self.get_mut(index) = value;
    }
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.length);
        // SAFETY: this is the box that `new` took apart, and nothing uses it after this.
        drop(unsafe { Box::from_raw(slice) });
    }
}
