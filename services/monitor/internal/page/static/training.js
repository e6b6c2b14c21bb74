// Throughput and loss over time, with the changes where they began.

import { at, fill, make } from './dom.js';
import { clock, seconds, short } from './figures.js';
import { listen, now, under } from './stream.js';

const minutes = 15, height = 110, head = 18, left = 44; // pixels, the head for the name
const eventColours = { failure: 'var(--lost)', 'link-failure': 'var(--lost)', 'broken-step': 'var(--lost)', join: 'var(--joining)' };

// scale returns what maps a value to the panel's height, and the greatest value; both ends are round.
function scale(values, fromZero) {
  const most = Math.max(...values, 0), least = fromZero ? 0 : Math.min(...values);
  const room = (most - least) * 0.12 || most * 0.1 || 1;
  const top = most + room, bottom = fromZero ? 0 : Math.max(0, least - room);
  return { y: (value) => height - ((value - bottom) / (top - bottom)) * (height - head), least, most };
}

function panel(name, unit, points, value, shape, width, x) {
  const { y, least, most } = scale(points.map(value), shape === 'area');
  const path = points.map((point, i) => `${i ? 'L' : 'M'}${x(point[0]).toFixed(1)} ${y(value(point)).toFixed(1)}`).join('');
  const last = points.at(-1);
  const label = `${name}: ${short(value(last))} ${unit}; ${short(least)} to ${short(most)} in this time`;
  const ends = `L${x(last[0]).toFixed(1)} ${height}L${x(points[0][0]).toFixed(1)} ${height}Z`;
  return make('svg', { class: 'chart', viewBox: `0 0 ${width} ${height + 4}`, role: 'img', 'aria-label': label },
    [head, (head + height) / 2, height].map((y1) => make('line', { class: 'grid', x1: left, x2: width, y1, y2: y1 })),
    shape === 'area' && make('path', { class: 'area', d: path + ends }),
    make('path', { class: shape === 'area' ? 'line' : 'line loss', d: path }),
    marks(width, x, shape === 'area'),
    make('text', { x: 0, y: y(most) + 9 }, short(most)),
    most !== least && make('text', { x: 0, y: Math.min(height, y(least)) }, short(least)),
    make('text', { x: left, y: 12 }, `${name}, ${unit}`));
}

// marks are lines where changes began; those that have room for it are named, the newest first.
function marks(width, x, named) {
  let free = width;
  return under('change/').sort(([a], [b]) => b - a).map(([generation, change]) => {
    const where = x(change.began / 1e3);
    if (!change.began || where < left) return undefined;
    const line = make('line', {
      class: 'event', x1: where, x2: where, y1: head, y2: height, style: { stroke: eventColours[change.kind] ?? 'var(--spare)' },
    }, make('title', {}, `${clock(change.began)} ${change.what}, generation ${generation}, stall ${seconds(change.stallSeconds)}`));
    if (!named || where + 7 * change.what.length > free || where < 200) return line; // the panel's own name is before
    free = where - 7;
    return [line, make('text', { class: 'what', x: where, y: 12 }, change.what)];
  });
}

function draw() {
  const points = under('points/').sort(([a], [b]) => a - b).flatMap(([, some]) => some);
  if (points.length < 2) {
    fill(at('training'), make('p', { class: 'note' }, 'Training has not been seen for long enough.'));
    return;
  }
  const width = Math.max(280, at('training').clientWidth), end = now() / 1e3, begin = Math.max(end - minutes * 60, points[0][0]);
  const x = (second) => left + ((second - begin) / (end - begin)) * (width - left);
  const seen = points.filter(([second]) => second >= begin);
  const rated = seen.slice(Math.max(0, seen.findIndex((point) => point[3] > 0))); // no rate is known of the first seconds
  const known = seen.filter(([, , loss]) => loss > 0);
  fill(at('training'),
    panel('throughput', 'samples/s', rated, (point) => point[3], 'area', width, x),
    known.length > 1 && panel('loss', 'of the last step', known, (point) => point[2], 'line', width, x),
    make('p', { class: 'note' }, `${clock(begin * 1e3)} to now, ${seconds(end - begin)}; lines where changes began`));
}

listen(['points/', 'change/'], draw);
addEventListener('resize', draw);
