// Curves of several runs as one: their interquartile mean, with a 95 % bootstrap interval.
const MOST_POSITIONS = 400;
const POSITIONS = 200;
const RESAMPLES = 1000;

const interpolated = (curve, xs) => {
  let right = 0;
  return xs.map((x) => {
    while (right < curve.x.length - 1 && curve.x[right] < x) right += 1;
    const left = Math.max(0, right - 1);
    const width = curve.x[right] - curve.x[left];
    return width > 0 ? curve.y[left] + ((curve.y[right] - curve.y[left]) * (x - curve.x[left])) / width : curve.y[right];
  });
};

// Without the lowest and the highest quarter; of values that are in order.
const interquartileMean = (values) => {
  const cut = Math.floor(values.length / 4);
  let sum = 0;
  for (let at = cut; at < values.length - cut; at += 1) sum += values[at];
  return sum / (values.length - 2 * cut);
};

const quantile = (values, share) => {
  const place = share * (values.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, values.length - 1);
  return values[below] + (values[above] - values[below]) * (place - below);
};

// The same numbers each time (mulberry32), so that a band does not change where it is drawn anew.
const generatorOf = (seed) => {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
};

// Whole runs are drawn anew, with replacement.
const drawnRuns = (runs) => {
  const random = generatorOf(1);
  return Array.from({ length: RESAMPLES }, () => Array.from({ length: runs }, () => Math.floor(random() * runs)));
};

// Where all curves were measured: beyond the end of the shortest the mean would be that of others.
const positionsOf = (curves) => {
  const first = Math.max(...curves.map((curve) => curve.x[0]));
  const last = Math.min(...curves.map((curve) => curve.x[curve.x.length - 1]));
  if (first > last) return null;
  const all = [...new Set(curves.flatMap((curve) => curve.x))].filter((x) => x >= first && x <= last);
  if (all.length <= MOST_POSITIONS) return all.sort((a, b) => a - b);
  return Array.from({ length: POSITIONS }, (_, at) => first + ((last - first) * at) / (POSITIONS - 1));
};

const bandOf = (curves) => {
  const x = positionsOf(curves);
  if (!x) return null;
  const values = curves.map((curve) => interpolated(curve, x));
  const ascending = (numbers) => Float64Array.from(numbers).sort();
  const draws = drawnRuns(curves.length);
  const low = [];
  const high = [];
  x.forEach((_, at) => {
    const found = ascending(draws.map((drawn) => interquartileMean(ascending(drawn.map((run) => values[run][at])))));
    low.push(quantile(found, 0.025));
    high.push(quantile(found, 0.975));
  });
  return { x, y: x.map((_, at) => interquartileMean(ascending(values.map((one) => one[at])))), low, high };
};
