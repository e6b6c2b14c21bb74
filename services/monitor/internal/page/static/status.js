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

// since says whether steps take another time now than when they were measured: more than half as long again, or less than two thirds.
function since(now, measured) {
  if (now > 1.5 * measured) return ' before steps became slower';
  return now > 0 && now < measured / 1.5 ? ' before steps became faster' : '';
}

// predicted says what a step was expected to take, by how much that was off and, where it is certain, why.
function predicted(plan, prediction, now) {
  if (plan.predicted.unmeasured) return 'not predicted: what layers take was not known';
  const expected = `${seconds(plan.predicted.stepSeconds)} predicted`;
  if (!prediction) return expected;
  const than = prediction.predictedSeconds > prediction.measuredSeconds ? 'more' : 'less';
  const off = `${Math.round(100 * prediction.error)} % ${than} than the ${seconds(prediction.measuredSeconds)} measured${since(now, prediction.measuredSeconds)}`;
  return `${expected}: ${off}${prediction.why ? ` (${prediction.why})` : ''}`;
}

// between says what lies between two steps, where that is more than scatter.
function between(now) {
  return now.paceSeconds > 1.1 * now.stepSeconds && `and ${seconds(now.paceSeconds - now.stepSeconds)} between two`;
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
    figure('Step', now.step.toLocaleString('en'), now.course),
    figure('Loss', now.diverged ? 'not finite' : now.loss ? now.loss.toPrecision(4) : '–', now.diverged && `since step ${now.diverged.toLocaleString('en')}`),
    figure('Throughput', short(now.rate), 'samples/s', 'measured: steps of the last seconds, times the samples of a step'),
    figure('Step time', seconds(now.stepSeconds), [between(now), plan && predicted(plan, now.prediction, now.stepSeconds)].filter(Boolean).join(', '),
      'measured, of the median node; predicted is what the planner computed before, from the seconds of each layer, the speed of each node, the links and '
      + 'how long passes and steps took before. It is compared with the first steps under the plan, and again where those change by a tenth'),
    figure('Nodes', nodes, now.states.training === nodes ? 'all train' : count(now.states.training ?? 0, 'trains', 'train')),
    figure('Generation', now.generation || '–'),
    ...(now.snapshots ?? []).map((tier) => figure(`Snapshot, ${tier.tier}`, tier.step ? `step ${tier.step.toLocaleString('en')}` : '–', tier.step ? `${Math.max(0, now.step - tier.step)} steps back` : tier.failing ? count(tier.failing.length, 'node cannot write', 'nodes cannot write') : 'none is complete yet',
      `the newest that all units are written of${tier.step ? `, at ${new Date(tier.at).toLocaleTimeString()}` : ''}`)));
});
