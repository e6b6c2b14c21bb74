// Pipelines and their stages: who holds which layers, and which layers are one death from lost.

import { arrows, at, fill, make } from './dom.js';
import { field } from './field.js';
import { count, layers, states } from './figures.js';
import { listen, part, under } from './stream.js';

const mostBlocks = 96; // beyond, a field of cells is drawn

const stateOf = (node) => part(`node/${node}`)?.state ?? 'lost';

// stages lists the stages of a plan.
export function stages(plan) {
  return plan.pipelines.flatMap((pipeline, p) => pipeline.nodes.map((node, s) => ({
    node, pipeline: p, stage: s, first: s ? pipeline.ends[s - 1] : 0, end: pipeline.ends[s], state: stateOf(node),
  })));
}

// describe says who a stage is.
export function describe({ node, pipeline, stage, first, end, state }, alone) {
  const risk = alone?.get(node);
  return `${node}: ${state}, pipeline ${pipeline}, stage ${stage}, ${layers(first, end)}`
    + (risk ? `; the only one with ${risk.count === end - first ? 'all of them' : count(risk.count, 'of them', 'of them')}` : '');
}

function block(one, alone, total) {
  const { node, first, end, state } = one;
  return make('button', {
    type: 'button', class: `stage ${state}${alone.has(node) ? ' alone' : ''}`, 'data-key': node, tabindex: -1,
    title: describe(one, alone), 'aria-label': describe(one, alone), style: { flex: `${(end - first) / total} 1 0` },
  }, make('span', { class: 'name' }, make('bdi', {}, `${states[state]} ${node}`.trim())), make('small', {}, end - first === 1 ? `${first}` : `${first}–${end - 1}`));
}

function blocks(plan, alone) {
  const all = stages(plan);
  return plan.pipelines.map((pipeline, p) => make('div', { class: 'row' },
    make('span', { class: 'quiet' }, `${p}`),
    make('div', { class: 'stages', role: 'group', 'aria-label': `pipeline ${p}` },
      all.filter((one) => one.pipeline === p).map((one) => block(one, alone, plan.layers))),
    make('span', { class: 'quiet', title: 'of each step' }, count(pipeline.microBatches, 'micro-batch', 'micro-batches'))));
}

// strip counts the holders of each layer; layers side by side that have as many are one cell.
function strip(holders) {
  const runs = [];
  holders.forEach((some, layer) => {
    if (runs.at(-1)?.some === some) runs.at(-1).end = layer + 1;
    else runs.push({ some, first: layer, end: layer + 1 });
  });
  return make('div', { class: 'row' }, make('span', { class: 'quiet', title: 'holders of each layer' }, 'held'),
    make('div', { class: 'holders', role: 'img', 'aria-label': `least holders of a layer: ${Math.min(...holders)}` },
      runs.map(({ some, first, end }) => make('span', {
        class: some === 1 ? 'one' : some ? '' : 'none', title: `${layers(first, end)}: ${count(some, 'holder')}`, style: { flex: `${end - first} 1 0` },
      }, runs.length > 4 ? some : count(some, 'holder')))), make('span'));
}

function coverage({ holders, alone }) {
  const none = holders.filter((some) => !some).length, one = holders.filter((some) => some === 1).length;
  if (none) return [make('span', { class: 'alarm' }, `${count(none, 'layer is', 'layers are')} with nobody who lives.`)];
  if (!one) return [`Every layer has at least ${count(Math.min(...holders), 'holder')}: no single death loses one.`];
  const names = alone.slice(0, 6).map(({ node, layers: { first, end } }) => `${node} (${layers(first, end)})`).join(', ');
  return [make('span', { class: 'alarm' }, `${count(one, 'layer is', 'layers are')} one death from lost`),
    `, unless a snapshot has ${one === 1 ? 'it' : 'them'}: only ${names}${alone.length > 6 ? ` and ${alone.length - 6} more` : ''}.`];
}

function spares(plan) {
  const placed = new Set(plan.pipelines.flatMap((pipeline) => pipeline.nodes));
  const others = under('node/').filter(([node]) => !placed.has(node));
  if (!others.length) return undefined;
  const names = others.slice(0, 12).map(([node, { state }]) => make('span', {}, make('i', { class: `dot ${state}` }), `${node} ${state} `));
  return make('p', { class: 'spares' }, 'Without a place: ', names, others.length > 12 ? ` and ${others.length - 12} more` : '');
}

listen(['plan', 'layers', 'node/'], () => {
  const plan = part('plan'), held = part('layers');
  if (!plan || !held) {
    fill(at('pipelines'), make('p', { class: 'note' }, 'There is no plan yet.'));
    return;
  }
  const alone = new Map(held.alone.map((sole) => [sole.node, sole]));
  const nodes = plan.pipelines.reduce((sum, pipeline) => sum + pipeline.nodes.length, 0);
  const shape = plan.kind === 'data-parallel' ? `${count(plan.pipelines.length, 'copy of the model', 'copies of the model')}` : `${count(plan.pipelines.length, 'pipeline')}, ${count(plan.layers, 'layer')}`;
  at('plan').textContent = `${shape}, policy ${plan.policy}`;
  const drawn = nodes <= mostBlocks ? make('div', { style: { '--rows': plan.pipelines.length } }, blocks(plan, alone)) : field(stages(plan), plan, alone);
  fill(at('pipelines'), drawn, strip(held.holders),
    plan.reroutes?.length ? make('p', { class: 'note' }, `Rerouted: ${plan.reroutes.map(({ from, to, microBatches, layers }) => `${to} takes ${microBatches} of ${from}${layers ? ` at layers ${layers.first}-${layers.end - 1}` : ''}`).join(', ')}`) : '',
    spares(plan));
  const first = at('pipelines').querySelector('.stage');
  if (first && document.activeElement?.className !== first.className) first.tabIndex = 0;
  fill(at('coverage'), coverage(held));
});

arrows(at('pipelines'), '.stage');
