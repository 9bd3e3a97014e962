//! What is added to an event: classes, a region, the energy, a readable time.

use std::fmt;

use super::{csv_row, event::Event};

/// The columns of an enriched row. The files have no header, so that they can be put together by `cat`.
pub const COLUMNS: &str = "id,time_utc,magnitude,magnitude_type,magnitude_class,energy_joules,longitude,latitude,\
                           depth_km,depth_class,region,place,status,network";

/// Weaker events are left out: most networks record only a part of them.
pub const MIN_MAGNITUDE: f64 = 1.0;

/// How strong an earthquake is, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MagnitudeClass {
    /// Below 3: rarely felt.
    Micro,
    /// 3 to 3.9.
    Minor,
    /// 4 to 4.9.
    Light,
    /// 5 to 5.9.
    Moderate,
    /// 6 to 6.9.
    Strong,
    /// 7 to 7.9.
    Major,
    /// 8 and more.
    Great,
}

impl MagnitudeClass {
    /// The class of a magnitude.
    pub fn of(magnitude: f64) -> Self {
        match magnitude {
            m if m < 3.0 => Self::Micro,
            m if m < 4.0 => Self::Minor,
            m if m < 5.0 => Self::Light,
            m if m < 6.0 => Self::Moderate,
            m if m < 7.0 => Self::Strong,
            m if m < 8.0 => Self::Major,
            _ => Self::Great,
        }
    }
}

impl fmt::Display for MagnitudeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Micro => "micro",
            Self::Minor => "minor",
            Self::Light => "light",
            Self::Moderate => "moderate",
            Self::Strong => "strong",
            Self::Major => "major",
            Self::Great => "great",
        })
    }
}

/// How deep an earthquake is, by the usual three zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DepthClass {
    /// Less than 70 km.
    Shallow,
    /// 70 to 300 km.
    Intermediate,
    /// More than 300 km.
    Deep,
}

impl DepthClass {
    /// The class of a depth in km.
    pub fn of(depth_km: f64) -> Self {
        match depth_km {
            d if d < 70.0 => Self::Shallow,
            d if d <= 300.0 => Self::Intermediate,
            _ => Self::Deep,
        }
    }
}

impl fmt::Display for DepthClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shallow => "shallow",
            Self::Intermediate => "intermediate",
            Self::Deep => "deep",
        })
    }
}

/// An event with what was derived from it.
#[derive(Debug, Clone, PartialEq)]
pub struct EnrichedEvent {
    /// What was read.
    pub event: Event,
    /// The time, as RFC 3339 in UTC.
    pub time_utc: String,
    /// By magnitude.
    pub magnitude_class: MagnitudeClass,
    /// By depth.
    pub depth_class: DepthClass,
    /// The country, state or sea.
    pub region: String,
    /// The seismic energy, in joules: log10 E = 4.8 + 1.5 M (Gutenberg and Richter).
    pub energy_joules: f64,
}

impl EnrichedEvent {
    /// The event, enriched; `None` if it is too weak for the result ([`MIN_MAGNITUDE`]).
    pub fn from_event(event: Event) -> Option<Self> {
        if event.magnitude < MIN_MAGNITUDE {
            return None;
        }
        Some(Self {
            time_utc: rfc3339(event.time_ms),
            magnitude_class: MagnitudeClass::of(event.magnitude),
            depth_class: DepthClass::of(event.depth_km),
            region: region(&event.place).to_owned(),
            energy_joules: 10_f64.powf(4.8 + 1.5 * event.magnitude),
            event,
        })
    }

    /// As a row of the result, see [`COLUMNS`].
    pub fn to_csv(&self) -> String {
        let event = &self.event;
        csv_row([
            event.id.as_str(),
            &self.time_utc,
            &event.magnitude.to_string(),
            &event.magnitude_type,
            &self.magnitude_class.to_string(),
            &format!("{:.3e}", self.energy_joules),
            &event.longitude.to_string(),
            &event.latitude.to_string(),
            &event.depth_km.to_string(),
            &self.depth_class.to_string(),
            &self.region,
            &event.place,
            &event.status,
            &event.network,
        ])
    }
}

/// What follows the last comma of a place, written out; the whole of it where there is none.
fn region(place: &str) -> &str {
    let last = place.rsplit(',').next().map_or(place, str::trim);
    match last {
        "CA" => "California",
        "NV" => "Nevada",
        "MX" => "Mexico",
        other => other,
    }
}

fn rfc3339(time_ms: i64) -> String {
    let (year, month, day) = civil(time_ms.div_euclid(86_400_000));
    let ms = time_ms.rem_euclid(86_400_000);
    let (hour, minute, second, rest) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}Z")
}

/// Year, month and day of a number of days since 1970-01-01. Years are counted from March, so that the leap day is the
/// last one, and in eras of 400 years, which are all of the same length.
fn civil(days: i64) -> (i64, i64, i64) {
    let from_year_0 = days + 719_468;
    let (era, day) = (from_year_0.div_euclid(146_097), from_year_0.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let month = if is_next_year { month - 9 } else { month + 3 };
    (era * 400 + year + i64::from(is_next_year), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(magnitude: &str, place: &str) -> Event {
        let line = format!("1517364466860,us1,{magnitude},ml,-104.8072,36.8543,4.1,\"{place}\",reviewed,us,1");
        Event::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn an_event_becomes_this_row() {
        let enriched = EnrichedEvent::from_event(event("2", "33km W of Raton, New Mexico")).unwrap();
        let row = "us1,2018-01-31T02:07:46.860Z,2,ml,micro,6.310e7,-104.8072,36.8543,4.1,shallow,New Mexico,\
                   \"33km W of Raton, New Mexico\",reviewed,us\n";
        assert_eq!(enriched.to_csv(), row);
        let quotes_aside = row.replace("Raton, ", "Raton ");
        assert_eq!(quotes_aside.split(',').count(), COLUMNS.split(',').count());
    }

    #[test]
    fn weak_events_are_left_out() {
        assert_eq!(EnrichedEvent::from_event(event("0.99", "x")), None);
        assert!(EnrichedEvent::from_event(event("1", "x")).is_some());
    }

    #[test]
    fn a_region_is_what_follows_the_last_comma() {
        for (place, expected) in [
            ("4km E of Mammoth Lakes, CA", "California"),
            ("8km SE of Ocotillo, B.C., MX", "Mexico"),
            ("Reykjanes Ridge", "Reykjanes Ridge"),
            ("1km N of Reno, NV", "Nevada"),
        ] {
            assert_eq!(region(place), expected);
        }
    }

    #[test]
    fn classes_change_at_their_bounds() {
        use {DepthClass::*, MagnitudeClass::*};
        let magnitudes =
            [(2.9, Micro), (3.0, Minor), (4.0, Light), (5.0, Moderate), (6.0, Strong), (7.0, Major), (8.0, Great)];
        assert_eq!(magnitudes.map(|(m, _)| MagnitudeClass::of(m)), magnitudes.map(|(_, class)| class));
        let depths = [(-2.0, Shallow), (69.9, Shallow), (70.0, Intermediate), (300.0, Intermediate), (300.1, Deep)];
        assert_eq!(depths.map(|(d, _)| DepthClass::of(d)), depths.map(|(_, class)| class));
    }

    #[test]
    fn days_become_dates() {
        for (days, date) in [(0, (1970, 1, 1)), (-1, (1969, 12, 31)), (11_016, (2000, 2, 29)), (17_562, (2018, 1, 31))]
        {
            assert_eq!(civil(days), date);
        }
    }
}
