// The classifier of photographs in the page: arml.predict.photos has its formulas. It is fitted anew,
// in a few milliseconds, whenever an example is added.
"use strict";
window.armlHead = (() => {
  const SHRINKAGE = 0.005, NU = 4;
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

  /** Square roots with their signs, scaled to length 1. */
  function unitRoots(vector) {
    const roots = Array.from(vector, (v) => Math.sign(v) * Math.sqrt(Math.abs(v)));
    const length = Math.max(Math.sqrt(dot(roots, roots)), 1e-9);
    return roots.map((root) => root / length);
  }

  /** The solutions X `[n, k]` of A X = B, for a positive definite A: Gauss and Jordan. */
  function solve(a, b) {
    const rows = a.map((row, i) => [...row, ...b[i]]), n = a.length;
    for (let i = 0; i < n; i++) {
      const pivot = rows[i][i];
      for (let k = i; k < rows[i].length; k++) rows[i][k] /= pivot;
      for (let j = 0; j < n; j++) {
        const factor = rows[j][i];
        if (j !== i && factor)
          for (let k = i; k < rows[i].length; k++) rows[j][k] -= factor * rows[i][k];
      }
    }
    return rows.map((row) => row.slice(n));
  }

  /** From the vectors of examples and the places of their classes to the head. */
  function fit(vectors, labels, ways, temperature) {
    const z = vectors.map(unitRoots), n = z.length;
    const mean = (rows) => rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);
    const middle = mean(z);
    const u = z.map((row) => row.map((value, i) => value - middle[i]));
    const means = Array.from({ length: ways }, (_, k) => mean(u.filter((_, i) => labels[i] === k)));
    const root = Math.sqrt(Math.max(n - ways, 0) + NU);
    const rows = u.map((row, i) => row.map((value, j) => (value - means[labels[i]][j]) / root));
    const gram = rows.map((a, i) => rows.map((b, j) => dot(a, b) + (i === j ? SHRINKAGE : 0)));
    const parts = solve(gram, rows.map((row) => means.map((m) => dot(row, m))));
    const weights = means.map((m, k) => {
      const mapped = m.map((value, j) => {
        let sum = value;
        for (let i = 0; i < n; i++) sum -= parts[i][k] * rows[i][j];
        return sum;
      });
      const length = Math.sqrt(Math.max(dot(mapped, m), 1e-12));
      return mapped.map((value) => value / length / temperature);
    });
    const own = Array.from({ length: ways }, (_, k) => mean(z.filter((_, i) => labels[i] === k)));
    const nearest = own.map((m) => m.map((value) => value / Math.sqrt(dot(m, m))));
    return { middle, weights, nearest };
  }

  /** The probability of each class. */
  function probabilities(head, vector) {
    const u = unitRoots(vector).map((value, i) => value - head.middle[i]);
    const length = Math.max(Math.sqrt(dot(u, u)), 1e-9);
    const logits = head.weights.map((w) => dot(u, w) / length);
    const top = Math.max(...logits), powers = logits.map((logit) => Math.exp(logit - top));
    const total = powers.reduce((sum, power) => sum + power, 0);
    return powers.map((power) => power / total);
  }

  /** One minus the cosine to the nearest class mean. */
  function distance(head, vector) {
    const z = unitRoots(vector);
    return 1 - Math.max(...head.nearest.map((m) => dot(m, z)));
  }

  return { fit, probabilities, distance };
})();
