//! One line of the catalogue: parsed, or the reason why it cannot be.

use std::ops::RangeInclusive;

use super::reject::Fault;

/// The first line of a catalogue.
pub const HEADER: &str = "time_ms,id,mag,magType,lon,lat,depth_km,place,status,net,updated_ms";

const COLUMNS: usize = 11;
/// 1900-01-01 to 2100-01-01: one mistyped year must not make every later row go back in time.
const TIMES_MS: RangeInclusive<i64> = -2_208_988_800_000..=4_102_444_800_000;
const MAGNITUDES: RangeInclusive<f64> = -5.0..=10.0;
const LONGITUDES: RangeInclusive<f64> = -180.0..=180.0;
const LATITUDES: RangeInclusive<f64> = -90.0..=90.0;
/// From above the highest mountain to below the deepest earthquake known.
const DEPTHS_KM: RangeInclusive<f64> = -10.0..=800.0;

/// An earthquake whose every value was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When it happened, in ms since 1970-01-01 UTC.
    pub time_ms: i64,
    /// Its id in the catalogue.
    pub id: String,
    /// Its magnitude.
    pub magnitude: f64,
    /// How the magnitude was determined.
    pub magnitude_type: String,
    /// Epicentre, degrees east.
    pub longitude: f64,
    /// Epicentre, degrees north.
    pub latitude: f64,
    /// Depth below sea level, in km.
    pub depth_km: f64,
    /// The nearest place, in words.
    pub place: String,
    /// `automatic` or `reviewed`.
    pub status: String,
    /// The network that reported it.
    pub network: String,
}

impl Event {
    /// An event from one line without its line end.
    ///
    /// # Errors
    /// The first [`Fault`], in the order of the columns.
    pub fn parse(line: &[u8]) -> Result<Self, Fault> {
        let line = std::str::from_utf8(line).map_err(|_| Fault::NotUtf8)?;
        let fields = split(line)?;
        let [time_ms, id, mag, mag_type, lon, lat, depth_km, place, status, network, updated_ms] =
            <[String; COLUMNS]>::try_from(fields).map_err(|all| Fault::ColumnCount { found: all.len() })?;
        if id.is_empty() {
            return Err(Fault::NoId);
        }
        let event = Self {
            time_ms: time("time_ms", &time_ms)?,
            id,
            magnitude: number("mag", &mag, MAGNITUDES)?,
            magnitude_type: mag_type,
            longitude: number("lon", &lon, LONGITUDES)?,
            latitude: number("lat", &lat, LATITUDES)?,
            depth_km: number("depth_km", &depth_km, DEPTHS_KM)?,
            place,
            status,
            network,
        };
        time("updated_ms", &updated_ms)?;
        Ok(event)
    }
}

/// The fields of a line. A catalogue has one event per line: a quote that is not closed spoils its own line only, and
/// cannot swallow the ones that follow.
fn split(line: &str) -> Result<Vec<String>, Fault> {
    if !line.matches('"').count().is_multiple_of(2) {
        return Err(Fault::OpenQuote);
    }
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .buffer_capacity(line.len().max(64))
        .from_reader(line.as_bytes());
    let mut record = csv::StringRecord::new();
    // Text in memory cannot fail to be read; whatever else the parser refuses is a line that is no row.
    match reader.read_record(&mut record) {
        Ok(_) => Ok(record.iter().map(str::to_owned).collect()),
        Err(_) => Err(Fault::ColumnCount { found: 0 }),
    }
}

fn time(column: &'static str, text: &str) -> Result<i64, Fault> {
    let time_ms = text.parse().map_err(|_| Fault::not_a_number(column, text))?;
    if TIMES_MS.contains(&time_ms) { Ok(time_ms) } else { Err(Fault::out_of_range(column, text)) }
}

fn number(column: &'static str, text: &str, range: RangeInclusive<f64>) -> Result<f64, Fault> {
    let number = text.parse::<f64>().map_err(|_| Fault::not_a_number(column, text))?;
    // NaN and the infinities parse, and are in no range.
    if range.contains(&number) { Ok(number) } else { Err(Fault::out_of_range(column, text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"1517363399650,uw61345682,0.31,ml,-122.197,46.2035,3.28,"37km NNE of Amboy, Washington",reviewed,uw,1517942380200"#;

    #[test]
    fn a_line_is_read_column_by_column() {
        let expected = Event {
            time_ms: 1_517_363_399_650,
            id: "uw61345682".into(),
            magnitude: 0.31,
            magnitude_type: "ml".into(),
            longitude: -122.197,
            latitude: 46.2035,
            depth_km: 3.28,
            place: "37km NNE of Amboy, Washington".into(),
            status: "reviewed".into(),
            network: "uw".into(),
        };
        assert_eq!(Event::parse(GOOD.as_bytes()), Ok(expected));
    }

    #[test]
    fn each_kind_of_damage_has_its_own_fault() {
        let changed = |from: &str, to: &str| Event::parse(GOOD.replace(from, to).as_bytes()).unwrap_err();
        assert_eq!(changed(",uw,1517942380200", ",uw"), Fault::ColumnCount { found: 10 });
        assert_eq!(changed(",uw,", ",uw,x,"), Fault::ColumnCount { found: 12 });
        assert_eq!(changed("0.31", "strong"), Fault::not_a_number("mag", "strong"));
        assert_eq!(changed("0.31", "NaN"), Fault::out_of_range("mag", "NaN"));
        assert_eq!(changed("46.2035", "96.2"), Fault::out_of_range("lat", "96.2"));
        assert_eq!(changed("-122.197", "-182"), Fault::out_of_range("lon", "-182"));
        assert_eq!(changed("3.28", "inf"), Fault::out_of_range("depth_km", "inf"));
        assert_eq!(changed("1517363399650", "9517363399650"), Fault::out_of_range("time_ms", "9517363399650"));
        assert_eq!(changed("1517942380200", ""), Fault::not_a_number("updated_ms", ""));
        assert_eq!(changed("uw61345682", ""), Fault::NoId);
        assert_eq!(changed("Washington\"", "Washington"), Fault::OpenQuote);
        assert_eq!(Event::parse(b""), Err(Fault::ColumnCount { found: 0 }));
        assert_eq!(Event::parse(b"\xff"), Err(Fault::NotUtf8));
    }
}
