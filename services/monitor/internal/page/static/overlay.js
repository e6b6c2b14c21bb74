// The overlay: nodes, or groups of them, on a circle, and how good the links between them are.

import { arrows, at, fill, make, named } from './dom.js';
import { bytes, count, seconds, states } from './figures.js';
import { listen, part } from './stream.js';

const size = 420, middle = size / 2;
let chosen; // the name of a group

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

// health says how a pair is beside the usual one.
function health(pair, usual) {
  if (pair.lost) return 'lost';
  if (pair.cut && !pair.bytesPerSecond) return 'cut';
  const isSlow = pair.bytesPerSecond < usual.rate / 4 || pair.roundTripSeconds > 8 * usual.trip + 1e-3;
  return pair.bytesPerSecond && isSlow ? 'slow' : 'well';
}

// worst returns the state of a group that wants attention most.
const worst = (group) => Object.keys(states).find((state) => group.states[state]) ?? 'training';

function places(groups) {
  const all = groups.reduce((sum, group) => sum + group.nodes, 0);
  const beside = all === groups.length ? Math.max(...groups.map(({ name }) => wide(named(name)))) : 0; // long names of nodes stand beside the circle
  const far = groups.length > 1 ? middle - Math.max(52, Math.min(96, 30 + beside)) : 0;
  return new Map(groups.map((group, i) => {
    const angle = (2 * Math.PI * i) / groups.length - Math.PI / 2;
    const radius = all === groups.length ? (groups.length > 16 ? 7 : 11) : Math.max(7, Math.min(34, 60 * Math.sqrt(group.nodes / all)));
    return [group.name, { x: middle + far * Math.cos(angle), y: middle + far * Math.sin(angle), radius, group, angle }];
  }));
}

// arcs draws a group: a ring with an arc for each state.
function arcs({ x, y, radius, group }) {
  const entries = Object.entries(group.states);
  if (entries.length === 1) return [make('circle', { cx: x, cy: y, r: radius, style: { fill: `var(--${entries[0][0]})` } })];
  let from = -Math.PI / 2;
  return entries.map(([state, nodes]) => {
    const to = from + (2 * Math.PI * nodes) / group.nodes, long = to - from > Math.PI ? 1 : 0;
    const point = (angle) => `${x + radius * Math.cos(angle)} ${y + radius * Math.sin(angle)}`;
    const path = make('path', { d: `M${x} ${y}L${point(from)}A${radius} ${radius} 0 ${long} 1 ${point(to)}Z`, style: { fill: `var(--${state})` } });
    from = to;
    return path;
  });
}

function line(pair, from, to, usual) {
  const state = health(pair, usual);
  const width = state === 'well' ? Math.max(0.6, Math.min(5, 1.5 + Math.log2((pair.bytesPerSecond || usual.rate) / (usual.rate || 1)))) : 2;
  return make('line', {
    class: `${state}${chosen === pair.a || chosen === pair.b ? ' of' : ''}`, x1: from.x, y1: from.y, x2: to.x, y2: to.y, 'stroke-width': width,
  }, make('title', {}, says(pair, usual)));
}

function says(pair, usual) {
  const parts = [pair.bytesPerSecond ? `${bytes(pair.bytesPerSecond)}/s, ${seconds(pair.roundTripSeconds)}` : 'not measured'];
  if (pair.lost) parts.push(pair.lost > 2 ? `${pair.lost} lost` : 'lost');
  if (pair.cut) parts.push('cut on purpose');
  if (health(pair, usual) === 'slow') parts.push('slow');
  return `${pair.a === pair.b ? `within ${pair.a}` : `${pair.a} – ${pair.b}`}: ${parts.join(', ')}`;
}

const pen = document.createElement('canvas').getContext('2d');

// wide is how wide a text is in the picture, whose letters style.css sets.
function wide(text) {
  pen.font = `15px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

// fitted is a name cut at its front to the room that it has: ends tell nodes of one host or cloud apart.
function fitted(name, room) {
  let from = 0, shown = name;
  while (wide(shown) > room && from < name.length - 1) shown = `…${name.slice(from += 1)}`;
  return shown;
}

// label stands outside of the circle beside a node, and below a group.
function label(by, { x, y, radius, group, angle }) {
  const state = worst(group), isNode = by === 'node', side = isNode ? Math.cos(angle) : 0, far = radius + 8;
  const some = group.states[state] < group.nodes ? `, ${group.states[state]} ${state}` : '', from = x + side * far;
  const room = side > 0.1 ? size - from : side < -0.1 ? from : 2 * Math.min(from, size - from);
  const rest = `${states[state]} `.trimStart(), tail = isNode ? '' : ` (${group.nodes}${some})`;
  return make('text', {
    x: from, y: isNode ? y + 4 + Math.sin(angle) * (far + 4) : y + far + 9,
    'text-anchor': side > 0.1 ? 'start' : side < -0.1 ? 'end' : 'middle',
  }, make('title', {}, group.name), rest + fitted(named(group.name), room - wide(rest + tail)) + tail);
}

function note(links, usual) {
  const bad = [...links.pairs, ...links.bad].filter((pair) => ['lost', 'slow', 'cut'].includes(health(pair, usual)));
  if (chosen) {
    const own = links.pairs.filter((pair) => pair.a === chosen || pair.b === chosen);
    return `${chosen}: ${own.length ? own.slice(0, 8).map((pair) => says(pair, usual)).join('; ') : links.usual ? 'no link is told apart from the usual one' : 'no link was measured'}${own.length > 8 ? ` and ${own.length - 8} more` : ''}`;
  }
  if (bad.length) return bad.slice(0, 5).map((pair) => says(pair, usual)).join('; ') + (bad.length > 5 ? ` and ${bad.length - 5} more` : '');
  const measured = links.pairs.reduce((sum, pair) => sum + (pair.measured ?? 0), 0);
  if (links.usual) return `The usual link carries ${bytes(usual.rate)}/s in ${seconds(usual.trip)}. ${count(measured, 'direction')} told apart from what is usual there, none lost, cut or slow.`;
  return `${count(measured, 'direction')} measured, none lost, cut or slow. A line's width is its bandwidth.`;
}

function draw() {
  const links = part('links');
  if (!links?.groups.length) return fill(at('overlay'), make('p', { class: 'note' }, 'There are no nodes yet: reknit agent run -- COMMAND starts one, with the address that reknit up tells.'));
  const measured = links.pairs.filter((pair) => pair.measured), told = links.usual;
  const usual = {
    rate: told?.bandwidthBytesPerSecond ?? median(measured.map((pair) => pair.bytesPerSecond)),
    trip: told?.roundTripSeconds ?? median(measured.map((pair) => pair.roundTripSeconds)),
  };
  const where = places(links.groups);
  if (!where.has(chosen)) chosen = undefined;
  const choose = (name) => () => { chosen = chosen === name ? undefined : name; draw(); };
  at('links-by').textContent = links.by === 'node' ? '' : links.by === 'all' ? 'all nodes together' : `by ${links.by}`;
  const order = { well: 0, cut: 1, slow: 2, lost: 3 };
  const pairs = links.pairs.filter((pair) => pair.a !== pair.b && where.has(pair.a) && where.has(pair.b))
    .toSorted((a, b) => order[health(a, usual)] - order[health(b, usual)]);
  fill(at('overlay'), make('svg', { class: `overlay${chosen ? ' chosen' : ''}`, viewBox: `0 0 ${size} ${size}`, role: 'group', 'aria-label': 'nodes and links', style: { 'max-height': '21rem' } },
    pairs.map((pair) => line(pair, where.get(pair.a), where.get(pair.b), usual)),
    links.groups.map(({ name }, i) => {
      const place = where.get(name);
      return make('g', {
        class: `ring${chosen === name ? ' chosen' : ''}`, tabindex: i ? -1 : 0, role: 'button', 'data-key': name, 'aria-pressed': `${chosen === name}`,
        'aria-label': `${name}: ${Object.entries(place.group.states).map(([state, nodes]) => `${nodes} ${state}`).join(', ')}`, click: choose(name),
        keydown: (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(name)(); } },
      }, arcs(place), make('circle', { class: 'halo', cx: place.x, cy: place.y, r: place.radius + 4 }), label(links.by, place));
    })));
  at('links-note').textContent = named(note(links, usual));
}

listen(['links'], draw);
arrows(at('overlay'), '.ring');
