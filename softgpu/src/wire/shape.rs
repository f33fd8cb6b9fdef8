//! Boxes: memory that is copied or filled in rows and slices.

/// A box in linear memory: rows of bytes, `pitch` bytes apart, in slices `slice` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Address of its first byte.
    pub start: u64,
    /// Bytes from row to row.
    pub pitch: u64,
    /// Bytes from slice to slice.
    pub slice: u64,
}

/// Size of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

/// Most rows of one box. Rows are moved one by one; no correct driver sends more.
pub const ROWS_MAX: u64 = 1 << 24;

impl Extent {
    /// Bytes of all rows; `None` if they exceed the address space.
    pub fn bytes(&self) -> Option<u64> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }

    /// Rows of all slices; `None` if there are more than [`ROWS_MAX`].
    pub fn rows(&self) -> Option<u64> {
        let rows = self.height.checked_mul(self.depth)?;
        (rows <= ROWS_MAX).then_some(rows)
    }
}

impl Spot {
    /// A box whose rows and slices follow each other without gaps.
    pub fn packed(start: u64, extent: &Extent) -> Self {
        Self {
            start,
            pitch: extent.width,
            slice: extent.width.wrapping_mul(extent.height),
        }
    }

    /// Bytes from the first to the last of a box here; 0 if empty, `None` beyond the address space.
    pub fn span(&self, extent: &Extent) -> Option<u64> {
        if extent.bytes()? == 0 {
            return Some(0);
        }
        let slices = self.slice.checked_mul(extent.depth - 1)?;
        let rows = self.pitch.checked_mul(extent.height - 1)?;
        let bytes = slices.checked_add(rows)?.checked_add(extent.width)?;
        self.start.checked_add(bytes).map(|_| bytes)
    }

    /// Address of a row; rows are counted over all slices.
    pub fn row(&self, extent: &Extent, row: u64) -> u64 {
        let (slice, row) = (row / extent.height, row % extent.height);
        self.start
            .wrapping_add(self.slice.wrapping_mul(slice))
            .wrapping_add(self.pitch.wrapping_mul(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_where_pitch_and_slice_put_them() {
        let extent = Extent {
            width: 3,
            height: 2,
            depth: 2,
        };
        let spot = Spot {
            start: 100,
            pitch: 10,
            slice: 50,
        };
        let rows: Vec<u64> = (0..4).map(|row| spot.row(&extent, row)).collect();
        assert_eq!(rows, [100, 110, 150, 160]);
        assert_eq!(spot.span(&extent), Some(63));
        assert_eq!(Spot::packed(7, &extent).span(&extent), Some(12));
        let none = Extent { depth: 0, ..extent };
        assert_eq!(spot.span(&none), Some(0));
    }

    #[test]
    fn boxes_beyond_the_address_space_have_no_span() {
        let extent = Extent {
            width: 2,
            height: 2,
            depth: 1,
        };
        let spot = |start, pitch| Spot {
            start,
            pitch,
            slice: 0,
        };
        assert_eq!(spot(0, u64::MAX).span(&extent), None);
        assert_eq!(spot(u64::MAX - 3, 2).span(&extent), None);
        let rows = Extent {
            height: ROWS_MAX + 1,
            ..extent
        };
        assert_eq!(rows.rows(), None);
    }
}
