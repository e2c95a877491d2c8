//! Which queues a worker serves, and in what order a claim looks into them.

/// Queues, in order or with weights.
#[derive(Debug, Clone)]
pub struct Queues {
    names: Vec<String>,
    /// None: in the order given, among jobs of equal priority.
    weights: Option<Vec<f64>>,
}

impl Queues {
    /// Earlier ones come first among jobs of equal priority, so a later one may starve.
    pub fn in_order<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), weights: None }
    }

    /// Each claim looks first into one that is drawn by weight, with all its priorities, then into the next drawn: while all
    /// have jobs, each has its share; what one does not use is the others'.
    pub fn by_weight(queues: impl IntoIterator<Item = (String, u32)>) -> Self {
        let (names, weights) = queues.into_iter().map(|(name, weight)| (name, f64::from(weight.max(1)))).unzip();
        Self { names, weights: Some(weights) }
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The order for one claim, and whether a queue's priorities all come before the next queue.
    pub fn draw(&self) -> (Vec<String>, bool) {
        let Some(weights) = &self.weights else { return (self.names.clone(), false) };
        // The least of exponential variables is each one's with the probability of its share, and so on for the rest.
        let mut drawn: Vec<(f64, &String)> = weights
            .iter()
            .zip(&self.names)
            .map(|(weight, name)| (-rand::random_range(f64::MIN_POSITIVE..1.0).ln() / weight, name))
            .collect();
        drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
        (drawn.into_iter().map(|(_, name)| name.clone()).collect(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_drawn_by_weight() {
        let queues = Queues::by_weight([("a".to_owned(), 3), ("b".to_owned(), 1)]);
        let first = (0..20_000).filter(|_| queues.draw().0[0] == "a").count();
        assert!((14_500..15_500).contains(&first), "{first} of 20000, 15000 expected");
        let (drawn, queue_first) = queues.draw();
        assert_eq!((drawn.len(), queue_first), (2, true));
    }

    #[test]
    fn without_weights_the_order_given_holds() {
        let queues = Queues::in_order(["b", "a"]);
        assert_eq!(queues.draw(), (vec!["b".to_owned(), "a".to_owned()], false));
    }
}
