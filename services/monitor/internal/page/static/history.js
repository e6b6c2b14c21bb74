// The changes, newest first, each as a timeline of its phases. One that is opened tells why it took so long.

import { arrows, at, fill, make } from './dom.js';
import { clock, colour, seconds, states } from './figures.js';
import { detail } from './detail.js';
import { listen, under } from './stream.js';

const open = new Map(); // generation: { state, element }
const marks = { failure: states.lost, join: states.joining, leave: states.leaving };

function timeline(change, longest) {
  if (!change.seconds) return make('span', { class: 'quiet' }, change.state);
  const width = Math.max(4, 100 * Math.sqrt(change.seconds / longest));
  const tells = change.phases.map((phase) => `${phase.name} ${seconds(phase.seconds)}`).join(', ');
  return make('span', { class: 'time', role: 'img', 'aria-label': tells, title: tells }, change.phases.map((phase) => make('i', {
    style: { background: colour(phase.name), width: `${(width * phase.seconds) / change.seconds}%` },
  })));
}

function head(generation, change, longest, isFirst) {
  const stall = change.stallSeconds ? `stall ${seconds(change.stallSeconds)}` : change.state === 'working' ? 'no stall' : change.state;
  return make('button', {
    type: 'button', class: 'head', 'data-key': `change-${generation}`, id: `change-${generation}`, tabindex: isFirst ? 0 : -1,
    'aria-expanded': `${open.has(generation)}`, click: () => toggle(generation),
  }, make('span', { class: 'number' }, generation), make('span', { class: 'when quiet' }, change.began > 0 ? clock(change.began) : ''),
  make('span', {}, `${marks[change.kind] ?? ''} ${change.what}`.trim()), timeline(change, longest),
  make('span', { class: 'took' }, change.seconds ? seconds(change.seconds) : '', make('small', {}, stall)));
}

async function toggle(generation) {
  if (open.has(generation)) open.delete(generation);
  else await show(generation);
  history.replaceState(null, '', open.has(generation) ? `#change-${generation}` : location.pathname + location.search);
  draw();
}

async function show(generation) {
  const change = new Map(under('change/')).get(generation);
  open.set(generation, { state: JSON.stringify(change), element: await detail(generation) });
}

let waiting = false;

// renew reads again what is open of changes that went on.
async function renew() {
  if (waiting) return;
  waiting = true;
  const all = new Map(under('change/'));
  for (const [generation, { state }] of open) {
    if (all.has(generation) && JSON.stringify(all.get(generation)) !== state) await show(generation);
  }
  waiting = false;
  draw();
}

function draw() {
  const all = under('change/').sort(([a], [b]) => b - a);
  if (!all.length) return fill(at('history'), make('li', { class: 'note' }, 'Nothing has changed yet.'));
  const longest = Math.max(...all.map(([, change]) => change.seconds));
  fill(at('history'), all.map(([generation, change], i) => make('li', {},
    head(generation, change, longest, i === 0), open.get(generation)?.element)));
}

listen(['change/'], () => {
  draw();
  if (open.size) renew();
});

arrows(at('history'), 'button.head');

// A link to a change opens it, once it is there.
const linked = /^#change-(\d+)$/.exec(location.hash)?.[1];
let isLinked = Boolean(linked);
listen(['change/'], async () => {
  if (!isLinked || !under('change/').some(([generation]) => generation === linked)) return;
  isLinked = false;
  await show(linked);
  draw();
  at(`change-${linked}`)?.scrollIntoView();
});
