// The nodes, those that want attention first: as many as fit, and the others by their names or states.

import { arrows, at, fill, make, named, table } from './dom.js';
import { bytes, clock, layers, seconds, short, states } from './figures.js';
import { address, listen, part, token, under } from './stream.js';
import { stages } from './pipelines.js';

const mostRows = 24;
const order = Object.keys(states);
const rank = new Map(order.map((name, i) => [name, i]));
const byName = new Intl.Collator('en', { numeric: true }); // n2 before n10; localeCompare would make one for each pair
let wanted = '', state = '';

const search = make('input', {
  type: 'search', placeholder: 'name or site', 'aria-label': 'nodes by name or site', input: (event) => { wanted = event.target.value; draw(); },
});
const filters = make('span', { class: 'tools' });
const list = make('div', { class: 'scroll' });
at('nodes').append(make('div', { class: 'tools' }, search, filters), list);

// since is a time of day, or of another day its date.
const since = (milliseconds) => (new Date(milliseconds).toDateString() === new Date().toDateString()
  ? clock(milliseconds) : new Date(milliseconds).toLocaleDateString());

// leave asks for a node to leave, once whoever clicked has said so twice.
async function leave(node) {
  if (!window.confirm(`Have ${named(node)} leave? It trains until the others can do without it.`)) return;
  const answer = await fetch(address(`leave/${encodeURIComponent(node)}`), { method: 'POST' }).catch((error) => ({ text: () => `${error}` }));
  if (!answer.ok) window.alert(named(`${named(node)} is not asked to leave. ${await answer.text()}`));
}

// The table is drawn anew while a button is held down: what counts is where it went down, or a key.
const asked = ({ target }) => target.dataset?.leave && leave(target.dataset.leave);
list.addEventListener('pointerdown', asked);
list.addEventListener('click', (event) => event.detail || asked(event));

const mayLeave = new Set(['training', 'spare', 'suspected', 'silent']);
const leaver = ({ name, node }) => token && mayLeave.has(node.state)
  && make('button', { type: 'button', 'data-leave': name, 'data-key': `leave ${name}`, 'aria-label': `have ${name} leave` }, 'Leave');

// columns are [heading, isFigure, what it says of a node]; one that says nothing of any is left out.
const columns = [
  ['node', false, ({ name, node }) => make('span', {}, make('i', { class: `dot ${node.state}` }), name)],
  ['state', false, ({ node }) => node.state],
  ['place', false, ({ place }) => place && `pipeline ${place.pipeline}, stage ${place.stage}`],
  ['layers', false, ({ place }) => place && layers(place.first, place.end)],
  ['peak memory', false, ({ node }) => node.memory?.[1] && `${bytes(node.memory[0])} of ${bytes(node.memory[1])}`],
  ['speed', true, ({ node }) => node.speed && short(node.speed)],
  ['step', true, ({ node }) => `${node.step ?? ''}`],
  ['step time', true, ({ node }) => node.stepSeconds && seconds(node.stepSeconds)],
  ['site', false, ({ node }) => node.site],
  ['joined', false, ({ node }) => node.joined && since(node.joined)],
  ['', false, leaver],
  ['because', false, ({ node }) => node.reason],
];

function filter(name, nodes) {
  return make('button', {
    type: 'button', 'aria-pressed': `${state === name}`, 'data-key': name, click: () => { state = state === name ? '' : name; draw(); },
  }, make('i', { class: `dot ${name}` }), `${nodes} ${name}`);
}

function draw() {
  const all = under('node/');
  const counts = {};
  for (const [, node] of all) counts[node.state] = (counts[node.state] ?? 0) + 1;
  fill(filters, order.filter((name) => counts[name]).map((name) => filter(name, counts[name])));
  const places = new Map(part('plan') ? stages(part('plan')).map((one) => [one.node, one]) : []);
  const found = all.filter(([name, node]) => (!state || node.state === state) && (!wanted || `${name} ${named(name)} ${node.site ?? ''}`.includes(wanted)))
    .sort(([a, x], [b, y]) => rank.get(x.state) - rank.get(y.state) || byName.compare(named(a), named(b)));
  const shown = found.slice(0, mostRows).map(([name, node]) => ({ name, node, place: places.get(name) }));
  const told = columns.filter(([, , cell]) => shown.some((one) => cell(one)));
  const rows = shown.map((one, i) => ({
    tabindex: i ? -1 : 0, 'data-key': one.name, cells: told.map(([, , cell]) => cell(one) || ''),
  }));
  const more = found.length - rows.length;
  fill(list, rows.length ? table(told, rows) : make('p', { class: 'note' }, 'No node is like that.'), more > 0 ? make('p', { class: 'note' }, `and ${more} more: search, or choose a state`) : '');
}

listen(['node/', 'plan'], draw);
arrows(list, 'tbody tr');
