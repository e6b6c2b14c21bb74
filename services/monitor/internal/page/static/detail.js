// All about one change: phase by phase, who was waited for, which attempts came to nothing, what came from whom, and why the plan is this one.

import { make, table } from './dom.js';
import { bytes, clock, colour, count, seconds, short } from './figures.js';
import { address } from './stream.js';

function phases(change) {
  if (!change.phases?.length) return [];
  const slowest = change.phases.reduce((most, one) => (one.seconds > most.seconds ? one : most));
  return [make('h3', {}, 'Why it took so long'), table([['phase'], ['took', true], ['of all', true], ['waited for at its end'], ['']],
    change.phases.map((phase) => ({
      class: phase === slowest ? 'best' : undefined,
      cells: [make('span', {}, make('i', { class: 'dot', style: { background: colour(phase.name), 'border-radius': '2px' } }), phase.name),
        seconds(phase.seconds), `${Math.round((100 * phase.seconds) / change.totalSeconds)} %`, phase.last ?? '', phase === slowest ? 'slowest' : ''],
    })))];
}

function summary(change) {
  const stall = change.stallNode ? `Training stood still for ${seconds(change.stallSeconds)} (${short(change.stallSteps)} steps) at most, at ${change.stallNode}. ` : '';
  const moved = change.naiveBytes ? `${bytes(change.bytesMoved)} moved; a restart would move ${bytes(change.naiveBytes)}.` : '';
  return stall || moved ? make('p', {}, stall + moved) : '';
}

function candidates(change) {
  if (!change.considered?.length) return [];
  const known = !change.predicted?.unmeasured; // else seconds only compare plans
  return [make('h3', {}, 'Why this plan'), make('p', { class: 'note' }, 'Nothing of this is measured: the planner predicted each step, how long it '
    + 'takes until training goes on so, and the samples a second that are left of both until the next failure is expected.'), table([['policy'], ['shape'], ['step', true], ['transition', true], ['samples/s', true], ['lost because']],
    change.considered.map((one) => ({
      class: one.rejected ? undefined : 'best',
      cells: [one.policy, one.shape || '–', known && one.stepSeconds ? seconds(one.stepSeconds) : '–',
        one.stepSeconds ? seconds(one.transitionSeconds) : '–', known && one.stepSeconds ? short(one.score) : '–', one.rejected || 'taken'],
    })))];
}

function receipts(change) {
  if (!change.receipts?.length) return [];
  return [make('h3', {}, 'What came from whom'), table([['receiver'], ['after', true], ['bytes', true], ['from']],
    change.receipts.map((one) => [one.node, seconds(one.seconds), bytes(one.units.reduce((sum, unit) => sum + unit.bytes, 0)),
      (one.sources ?? []).map((source) => `${source.from || 'the hub'} ${bytes(source.bytes)} at ${bytes(source.bytesPerSecond)}/s`).join(', ')]))];
}

function attempts(change) {
  const told = change.attempts?.filter((one) => one.ended || one.said?.length || one.overdue) ?? [];
  if (!told.length) return [];
  return [make('h3', {}, 'Attempts'), table([['began'], ['took', true], ['ended'], ['said meanwhile']],
    told.map((one) => [clock(Date.parse(one.opened)), seconds(one.seconds), one.ended ? `${one.phase}: ${one.ended}` : '',
      [...(one.said ?? []), one.overdue ? `overdue ${count(one.overdue, 'time')}` : ''].filter(Boolean).join('; ')]))];
}

function refusals(change) {
  return (change.refusals ?? []).map((one) => make('p', {}, `Refused: ${one.refused} of ${one.node}: ${one.reason}`));
}

// detail reads a change and returns it as an element.
export async function detail(generation) {
  try {
    const response = await fetch(address(`changes/${generation}`));
    if (!response.ok) throw new Error(await response.text());
    const change = await response.json();
    return make('div', { class: 'detail' }, summary(change), phases(change), candidates(change), receipts(change), attempts(change),
      refusals(change), make('p', { class: 'note' }, `The same in a terminal: reknit history ${generation}; reknit explain ${generation}`));
  } catch (error) {
    return make('div', { class: 'detail alarm' }, `It cannot be read: ${error.message}`);
  }
}
