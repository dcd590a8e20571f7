//! Tables with columns as wide as what is in them.

/// A table under a title.
#[derive(Debug)]
pub(super) struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one.
    pub(super) fn new(title: &str, heads: &[&str]) -> Self {
        Self { title: title.to_owned(), rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Prints it, unless it is empty.
    pub(super) fn print(&self) {
        if self.rows.len() < 2 {
            return;
        }
        println!("\n{}", self.title);
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            println!("  {}", cells.join("  ").trim_end());
            if index == 0 {
                println!("  {}", widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("  "));
            }
        }
    }
}
