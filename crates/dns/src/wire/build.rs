//! Writing a message into a buffer of the caller: a cursor with a limit, which never allocates.
//!
//! The limit is that of the transport and the client, less the space reserved for the final records of the message (OPT), so that
//! they always fit (RFC 6891 §7).

/// The message would exceed its limit; the current data is missing or incomplete: see [`Writer::rewind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is full")]
pub struct Full;

/// A message being written.
pub struct Writer<'a> {
    octets: &'a mut [u8],
    position: usize,
    limit: usize,
}

impl<'a> Writer<'a> {
    /// Returns an empty message of at most `limit` octets, within `octets`.
    #[inline]
    pub fn new(octets: &'a mut [u8], limit: usize) -> Self {
        let limit = limit.min(octets.len());
        Writer { octets, position: 0, limit }
    }

    /// Returns the number of written octets, which is also the position of the next one.
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of octets that can still be written.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.limit - self.position
    }

    /// Keeps the last `octets` of the message free until [`Self::release`].
    #[inline]
    pub fn reserve(&mut self, octets: usize) -> Result<(), Full> {
        if octets > self.remaining() {
            return Err(Full);
        }
        self.limit -= octets;
        Ok(())
    }

    /// Releases the reserved octets.
    #[inline]
    pub fn release(&mut self, octets: usize) {
        self.limit = (self.limit + octets).min(self.octets.len());
    }

    /// Forgets all that was written at `position` and after it.
    pub fn rewind(&mut self, position: usize) {
        self.position = position.min(self.position);
    }

    /// Appends `octets`.
    #[inline]
    pub fn put(&mut self, octets: &[u8]) -> Result<(), Full> {
        let room = self.octets[self.position..self.limit].get_mut(..octets.len()).ok_or(Full)?;
        room.copy_from_slice(octets);
        self.position += octets.len();
        Ok(())
    }

    /// Appends `first` and `second`, or nothing.
    #[inline]
    pub fn put_both(&mut self, first: &[u8], second: &[u8]) -> Result<(), Full> {
        let octets = first.len() + second.len();
        let room = self.octets[self.position..self.limit].get_mut(..octets).ok_or(Full)?;
        let (first_room, second_room) = room.split_at_mut_checked(first.len()).ok_or(Full)?;
        first_room.copy_from_slice(first);
        second_room.copy_from_slice(second);
        self.position += octets;
        Ok(())
    }

    /// Appends a number in network order.
    #[inline]
    pub fn put_u16(&mut self, value: u16) -> Result<(), Full> {
        self.put(&value.to_be_bytes())
    }

    /// Returns the octets written so far.
    #[inline]
    pub fn written(&self) -> &[u8] {
        &self.octets[..self.position]
    }

    /// Returns the octets written so far, to change them in place.
    #[inline]
    pub fn written_mut(&mut self) -> &mut [u8] {
        &mut self.octets[..self.position]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_stays_free() {
        let mut buffer = [0; 16];
        let mut writer = Writer::new(&mut buffer, 8);
        writer.reserve(3).expect("there is room");
        assert_eq!(writer.put(b"123456"), Err(Full));
        writer.put(b"12345").expect("there is room");
        assert_eq!(writer.put(b"6"), Err(Full));
        writer.release(3);
        writer.put(b"678").expect("the reserve is back");
        assert_eq!((writer.written(), writer.remaining()), (&b"12345678"[..], 0));
        writer.rewind(2);
        assert_eq!(writer.written(), b"12");
    }
}
