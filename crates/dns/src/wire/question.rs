//! The question of a query (RFC 1035 §4.1.2).

use super::header::HEADER_OCTETS;
use super::name::{LABEL_OCTETS_MAX, NAME_OCTETS_MAX};
use super::rtype::{Class, RecordType};

/// The start of the first question of every message, and thus the target of the pointer that most owners are.
pub const QUESTION_AT: usize = HEADER_OCTETS;

/// A question that directly follows the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Octets of the name, root label included: 1 to 255. It starts at [`QUESTION_AT`].
    pub name_length: u8,
    /// The queried type.
    pub qtype: RecordType,
    /// The queried class.
    pub qclass: Class,
}

impl Question {
    /// Reads the first question of `message`. `None` if it extends past the end, or its name is longer than 255 octets or has
    /// anything except plain labels: a pointer here could point only into the header or to itself.
    #[inline]
    pub fn read(message: &[u8]) -> Option<Question> {
        let question = message.get(QUESTION_AT..)?;
        let longest = &question[..question.len().min(NAME_OCTETS_MAX)];
        let mut at = 0;
        loop {
            let length = usize::from(*longest.get(at)?);
            at += 1 + length;
            if length == 0 {
                break;
            }
            if length > LABEL_OCTETS_MAX {
                return None;
            }
        }
        let fixed: &[u8; 4] = question.get(at..)?.first_chunk()?;
        Some(Question {
            name_length: at as u8,
            qtype: RecordType(u16::from_be_bytes([fixed[0], fixed[1]])),
            qclass: Class(u16::from_be_bytes([fixed[2], fixed[3]])),
        })
    }

    /// Returns the end of the question in its message.
    #[inline]
    pub fn end(&self) -> usize {
        QUESTION_AT + usize::from(self.name_length) + 4
    }

    /// Returns the name's octets in the message that it was read from.
    #[inline]
    pub fn name<'m>(&self, message: &'m [u8]) -> &'m [u8] {
        &message[QUESTION_AT..QUESTION_AT + usize::from(self.name_length)]
    }
}
