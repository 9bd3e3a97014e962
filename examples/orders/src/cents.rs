//! Money: whole cents, never a floating point number.

use std::{fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};
use thiserror::Error;

/// The most digits in front of the point.
const MAX_DIGITS: usize = 15;

/// An amount of US dollars, in cents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cents(i64);

/// A text that is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("up to {MAX_DIGITS} digits, a point and two digits are one")]
pub struct NoAmount;

impl Cents {
    /// So many cents.
    pub const fn new(cents: i64) -> Self {
        Self(cents)
    }

    /// The number of cents.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Both together; none if that is out of range.
    pub fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
}

impl FromStr for Cents {
    type Err = NoAmount;

    fn from_str(text: &str) -> Result<Self, NoAmount> {
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
        let (dollars, cents) = digits.split_once('.').ok_or(NoAmount)?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !(1..=MAX_DIGITS).contains(&dollars.len()) || cents.len() != 2 || !is_number(dollars) || !is_number(cents) {
            return Err(NoAmount);
        }
        let value = |text: &str| text.parse::<i64>().map_err(|_| NoAmount);
        Ok(Self(sign * (value(dollars)? * 100 + value(cents)?)))
    }
}

impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let cents = self.0.unsigned_abs();
        f.pad(&format!("{sign}{}.{:02}", cents / 100, cents % 100))
    }
}

impl Serialize for Cents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;
        impl Visitor<'_> for Amount {
            type Value = Cents;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Cents, E> {
                text.parse().map_err(|error| E::custom(format_args!("{text:?} is no amount: {error}")))
            }
        }
        // Never as whatever it looks like: that would be a floating point number.
        deserializer.deserialize_str(Amount)
    }
}

/// What the four [`Amounts`] are, in their order.
pub const AMOUNT_NAMES: [&str; 4] = ["sales", "discounts of the shop", "discounts of coupons", "matched coupons"];

/// The four amounts of an item, or their sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amounts {
    /// What the shop received.
    pub sales: Cents,
    /// The shop's discount.
    pub retail_disc: Cents,
    /// The discount of the manufacturer's coupon.
    pub coupon_disc: Cents,
    /// The shop's match of the coupon.
    pub coupon_match_disc: Cents,
}

impl Amounts {
    /// Both together; none if one is out of range.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        Some(Self {
            sales: self.sales.plus(other.sales)?,
            retail_disc: self.retail_disc.plus(other.retail_disc)?,
            coupon_disc: self.coupon_disc.plus(other.coupon_disc)?,
            coupon_match_disc: self.coupon_match_disc.plus(other.coupon_match_disc)?,
        })
    }

    /// The four of them, in cents.
    pub fn to_cents(self) -> [i64; 4] {
        [self.sales, self.retail_disc, self.coupon_disc, self.coupon_match_disc].map(Cents::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_read_to_the_cent_and_told_as_it_was_read() {
        for (text, cents) in
            [("0.50", 50), ("-3.07", -307), ("123456789012345.99", 12_345_678_901_234_599), ("0.00", 0)]
        {
            let amount: Cents = text.parse().unwrap();
            assert_eq!((amount.get(), amount.to_string()), (cents, text.to_owned()));
            assert_eq!(serde_json::from_str::<Cents>(&serde_json::to_string(&amount).unwrap()).unwrap(), amount);
        }
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in
            ["", "1", "1.5", "1.505", "1,50", ".50", "--1.00", "+1.00", "1e2", "1.-5", " 1.00", "1234567890123456.00"]
        {
            assert_eq!(text.parse::<Cents>(), Err(NoAmount), "{text:?}");
        }
    }

    #[test]
    fn a_sum_out_of_range_is_none() {
        let most = Amounts { coupon_disc: Cents::new(i64::MAX), ..Amounts::default() };
        let cent = Amounts { coupon_disc: Cents::new(1), ..Amounts::default() };
        assert_eq!(most.plus(&cent), None);
        assert_eq!(cent.plus(&cent).unwrap().to_cents(), [0, 0, 2, 0]);
    }
}
