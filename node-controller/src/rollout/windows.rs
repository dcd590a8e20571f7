//! When changes may begin.

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan, Zoned};
use nodelet_api::objects::{Day, Window};

/// Why nothing may begin now, with when it may; `None` when it may.
pub(super) fn closed(windows: &[Window], now: Timestamp) -> Option<String> {
    if windows.is_empty() {
        return None;
    }
    let mut next: Option<Zoned> = None;
    for window in windows {
        let Some((zone, at)) = read(window) else {
            return Some(format!(
                "the window at {} has a time zone that is not known: {}",
                window.start, window.time_zone
            ));
        };
        let today = now.to_zoned(zone.clone()).date();
        // A window may be a week long, and the next one may be a week away.
        for offset in -8..=8 {
            let Ok(date) = today.checked_add(Span::new().days(offset)) else { continue };
            if !window.days.is_empty() && !window.days.iter().any(|day| weekday(*day) == date.weekday()) {
                continue;
            }
            // In the night that skips or repeats an hour, the time that a wall clock would show.
            let Ok(start) = date.to_datetime(at).to_zoned(zone.clone()) else { continue };
            let Ok(end) = start.checked_add(i64::from(window.duration_minutes).minutes()) else { continue };
            if start.timestamp() <= now && now < end.timestamp() {
                return None;
            }
            if start.timestamp() > now && next.as_ref().is_none_or(|next| start.timestamp() < next.timestamp()) {
                next = Some(start);
            }
        }
    }
    Some(match next {
        Some(next) => format!("the next window opens at {}", next.strftime("%a %F %H:%M %Z")),
        None => "no window opens within a week".to_owned(),
    })
}

fn read(window: &Window) -> Option<(TimeZone, Time)> {
    let (hour, minute) = window.start.split_once(':')?;
    Some((TimeZone::get(&window.time_zone).ok()?, Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()?))
}

fn weekday(day: Day) -> Weekday {
    match day {
        Day::Mon => Weekday::Monday,
        Day::Tue => Weekday::Tuesday,
        Day::Wed => Weekday::Wednesday,
        Day::Thu => Weekday::Thursday,
        Day::Fri => Weekday::Friday,
        Day::Sat => Weekday::Saturday,
        Day::Sun => Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn window(days: &[Day], start: &str, minutes: u32) -> Window {
        Window {
            days: days.to_vec(),
            start: start.into(),
            duration_minutes: minutes,
            time_zone: "Europe/Berlin".into(),
        }
    }

    fn is_open(windows: &[Window], now: &str) -> bool {
        closed(windows, now.parse().unwrap()).is_none()
    }

    #[test]
    fn windows_open_and_close() {
        let night = [window(&[Day::Sat], "23:00", 120)];
        // Saturday 21 November 2026, in winter: one hour ahead of UTC.
        for (now, open) in [
            ("2026-11-21T21:59:00Z", false),
            ("2026-11-21T22:00:00Z", true),
            ("2026-11-21T23:59:00Z", true),
            ("2026-11-22T00:00:00Z", false),
            ("2026-11-20T22:30:00Z", false),
        ] {
            assert_eq!(is_open(&night, now), open, "{now}");
        }
        let both = [window(&[Day::Sat], "23:00", 120), window(&[], "12:00", 1)];
        assert!(is_open(&both, "2026-11-18T11:00:30Z") && !is_open(&both, "2026-11-18T11:01:00Z"));
        assert!(is_open(&[window(&[Day::Mon], "00:00", 10_080)], "2026-11-18T00:00:00Z"), "a week long");
    }

    #[test]
    fn the_next_window_is_told() {
        let told = closed(&[window(&[Day::Sat], "23:00", 60)], "2026-11-18T00:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(told, "the next window opens at Sat 2026-11-21 23:00 CET");
        let wrong = Window { time_zone: "Mars/Olympus".into(), ..window(&[], "23:00", 60) };
        assert!(closed(&[wrong], Timestamp::UNIX_EPOCH).unwrap().contains("Mars/Olympus"));
    }

    #[test]
    fn the_clock_changes_in_spring_and_autumn() {
        // 29 March 2026: 02:00 becomes 03:00 in Berlin. 25 October 2026: 03:00 becomes 02:00.
        let early = [window(&[Day::Sun], "02:30", 60)];
        assert!(is_open(&early, "2026-03-29T01:45:00Z"), "03:45 by the clock; it opened at 03:30");
        assert!(!is_open(&early, "2026-03-29T02:45:00Z"));
        assert!(is_open(&early, "2026-10-25T00:45:00Z") && !is_open(&early, "2026-10-25T02:00:00Z"));
    }
}
