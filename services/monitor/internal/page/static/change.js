// The change that is under way: its phases, for whom it waits, and what is on its way to whom.

import { at, fill, make } from './dom.js';
import { bytes, colour, count, phases, seconds } from './figures.js';
import { listen, now, under } from './stream.js';

// steps are the phases of a negotiation, with what it is called while it is in each.
const steps = [
  ['consent', 'consenting'], ['plan', 'planning'], ['restore', 'restoring'], ['pre-copy', 'pre-copying'], ['promise', 'promising'],
  ['transfer', 'transferring'], ['commit', ''], ['first step', 'committed'],
];

const isUnderWay = (change) => change.now || change.held || change.state === 'pending';

// underWay returns the newest change, where it is not done with.
function underWay() {
  const [newest] = under('change/').sort(([a], [b]) => b - a).filter(([, change]) => !['refused', 'withdrawn'].includes(change.state));
  return newest && isUnderWay(newest[1]) ? newest[1] : undefined;
}

function track(change) {
  const phase = change.state === 'committed' ? 'committed' : change.now.phase;
  const current = steps.findIndex(([, name]) => name === phase);
  const took = Object.fromEntries(change.phases.map((one) => [one.name, one]));
  return make('ol', { class: 'phases' }, steps.map(([name], i) => {
    const state = i === current ? 'at' : i < current ? 'done' : '';
    return make('li', {
      class: state, 'aria-current': i === current && 'step', style: state ? { 'border-color': colour(name) } : {},
    }, name, took[name] && i < current ? ` ${seconds(took[name].seconds)}` : '');
  }));
}

function waits({ awaits, waits: all, members, delays, overdue, phase }) {
  if (!all) return make('p', {}, `All ${members} members did their part in ${phase}.`);
  const more = all > awaits.length ? ` and ${all - awaits.length} more` : '';
  return make('p', {}, `Waiting for ${count(all, 'answer')} of ${members} members: `, make('strong', {}, awaits.join(', ') + more),
    overdue ? make('span', { class: 'warn' }, ` overdue ${count(overdue, 'time')}`) : '',
    Object.entries(delays ?? {}).map(([node, busy]) => make('span', { class: 'quiet' }, `; ${node} asked for time: ${busy}`)));
}

// transfers are bars. The log tells when a receiver has verified all, and not how far it is before that.
function transfers(change) {
  const { fetches, fetched, fetch, bytes: got } = change.now;
  if (!fetch) return make('p', { class: 'note' }, change.shape ? 'Nothing has to move.' : '');
  return [
    make('p', {}, `${bytes(got)} of ${bytes(change.bytesMoved)} verified, by ${fetched} of ${count(fetch, 'receiver')}`),
    make('div', { class: 'bar', role: 'progressbar', 'aria-valuemin': 0, 'aria-valuemax': change.bytesMoved, 'aria-valuenow': got,
      'aria-label': 'bytes verified' }, make('i', { style: { width: `${change.bytesMoved ? (100 * got) / change.bytesMoved : 0}%` } })),
    make('h3', {}, 'Receivers'),
    make('div', { class: 'fetches' }, fetches.flatMap((one) => [
      make('span', {}, `${one.node} ← ${one.sources.slice(0, 4).join(', ')}${one.sources.length > 4 ? ' …' : ''}`),
      make('div', { class: one.seconds ? 'bar' : 'bar under' }, make('i', { style: { width: '100%' } })),
      make('span', {}, one.seconds ? `${bytes(one.bytes)} in ${seconds(one.seconds)}` : `${bytes(one.bytes)} on the way`),
    ]), fetch > fetches.length ? make('span', { class: 'quiet' }, `and ${fetch - fetches.length} more`) : ''),
  ];
}

function draw() {
  const change = underWay();
  at('under-way').hidden = !change;
  if (!change) return;
  const since = change.began > 0 ? change.began : change.now?.opened;
  fill(at('change'),
    make('p', {}, make('strong', {}, change.what), ` to generation ${change.generation}`,
      since ? make('span', { class: 'quiet' }, `, for ${seconds(Math.max(0, now() - since) / 1e3)}`) : '',
      change.attempts > 1 ? make('span', { class: 'warn' }, `, attempt ${change.attempts}`) : ''),
    change.held ? make('p', { class: 'alarm' }, `The cluster holds: ${change.held.reason}`) : '',
    change.held?.awaits?.length ? make('p', {}, `It needs what only these have: ${change.held.awaits.join(', ')}`) : '',
    change.waiting ? make('p', { class: 'warn' }, `It waits: ${change.waiting}`) : '',
    change.now ? [track(change), change.state === 'committed' ? '' : waits(change.now), transfers(change)] : '');
}

listen(['change/'], draw);
setInterval(() => at('under-way').hidden || draw(), 500); // its clock

fill(at('legend'), Object.keys(phases).filter((name) => name !== 'earlier attempts').map((name) => make('li', {},
  make('i', { style: { background: colour(name) } }), name)));
