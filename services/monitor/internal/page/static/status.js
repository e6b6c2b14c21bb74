// The cluster in a line, its figures, and whether this page is up to date.

import { at, fill, make, named } from './dom.js';
import { count, seconds, short } from './figures.js';
import { listen, part } from './stream.js';

const says = {
  live: 'live', lost: 'out of reach: what stands here is old', refused: 'this link holds no valid token: ask for the whole link',
};

// tell says how the connection to the monitor is.
export function tell(state) {
  at('link').textContent = says[state];
  at('link').className = state === 'live' ? 'quiet' : 'alarm';
  if (state === 'refused') at('says').textContent = 'Nothing is shown';
}

function figure(name, value, more, title) {
  return make('div', { title }, make('dt', {}, name), make('dd', {}, value, more && make('small', {}, ` ${more}`)));
}

// planned says what a step was expected to take, by how much that was off and, where it is certain, why.
function planned(plan, prediction) {
  if (plan.predicted.unmeasured) return 'not planned: what layers take was not known';
  const expected = `${seconds(plan.predicted.stepSeconds)} planned`;
  if (!prediction) return expected;
  return `${expected}, ${Math.round(100 * prediction.error)} % off${prediction.why ? `: ${prediction.why}` : ''}`;
}

listen(['now', 'plan'], () => {
  const now = part('now');
  if (!now) return;
  const plan = part('plan');
  at('cluster').textContent = now.cluster;
  const line = named(now.says);
  if (at('says').textContent !== line) at('says').textContent = line;
  document.body.className = now.level;
  document.title = `${now.level === 'trouble' ? '⚠ ' : ''}${now.cluster}: ${line}`;
  const nodes = Object.values(now.states).reduce((sum, some) => sum + some, 0);
  fill(at('figures'),
    figure('Step', now.step.toLocaleString('en')),
    figure('Loss', now.loss ? now.loss.toPrecision(4) : '–'),
    figure('Throughput', short(now.rate), 'samples/s', 'measured: steps of the last seconds, times the samples of a step'),
    figure('Step time', seconds(now.stepSeconds), plan && planned(plan, now.prediction),
      'measured, of the median node; planned is what the planner computed before, from the seconds of each layer, the speed of each node, the links and '
      + 'how far it was off before. How far it is off is measured over the first steps under the plan, and again where that changes'),
    figure('Nodes', nodes, now.states.training === nodes ? 'all train' : count(now.states.training ?? 0, 'trains', 'train')),
    figure('Generation', now.generation || '–'));
});
