//! What can only be judged by looking at the lines before: unique ids, ascending times.

use std::collections::HashMap;

use super::{event::Event, reject::Fault};

/// What was accepted so far. Refused lines leave no trace: one bad time must not make all later ones go back.
#[derive(Debug, Default)]
pub struct Order {
    last_ms: Option<i64>,
    /// Id and line; grows with the catalogue, which is bounded by [`super::CatalogueError::TooManyLines`].
    seen: HashMap<String, u64>,
}

impl Order {
    /// Takes an event that fits behind all earlier ones.
    ///
    /// # Errors
    /// [`Fault::DuplicateId`], [`Fault::TimeGoesBack`].
    pub fn admit(&mut self, line: u64, event: &Event) -> Result<(), Fault> {
        if let Some(first_line) = self.seen.get(&event.id) {
            return Err(Fault::DuplicateId { id: event.id.clone(), first_line: *first_line });
        }
        if let Some(previous_ms) = self.last_ms.filter(|last| event.time_ms <= *last) {
            return Err(Fault::TimeGoesBack { time_ms: event.time_ms, previous_ms });
        }
        self.last_ms = Some(event.time_ms);
        self.seen.insert(event.id.clone(), line);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ms: i64, id: &str) -> Event {
        let line = format!("{time_ms},{id},1,ml,0,0,0,x,reviewed,us,1");
        Event::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn an_id_is_taken_once_and_time_only_goes_on() {
        let mut order = Order::default();
        assert_eq!(order.admit(2, &event(100, "a")), Ok(()));
        let twice = Fault::DuplicateId { id: "a".into(), first_line: 2 };
        assert_eq!(order.admit(3, &event(200, "a")), Err(twice));
        let back = |time_ms| Fault::TimeGoesBack { time_ms, previous_ms: 100 };
        assert_eq!(order.admit(4, &event(99, "b")), Err(back(99)));
        assert_eq!(order.admit(5, &event(100, "b")), Err(back(100)));
        assert_eq!(order.admit(6, &event(101, "b")), Ok(()), "a refused line leaves no trace");
    }
}
