// The nodes, those that want attention first: as many as fit, and the others by their names or states.

import { arrows, at, fill, make, table } from './dom.js';
import { bytes, layers, seconds, short, states } from './figures.js';
import { listen, part, under } from './stream.js';
import { stages } from './pipelines.js';

const mostRows = 24;
const order = Object.keys(states);
let wanted = '', state = '';

const search = make('input', {
  type: 'search', placeholder: 'name or site', 'aria-label': 'nodes by name or site', input: (event) => { wanted = event.target.value; draw(); },
});
const filters = make('span', { class: 'tools' });
const list = make('div', { class: 'scroll' });
at('nodes').append(make('div', { class: 'tools' }, search, filters), list);

function filter(name, nodes) {
  return make('button', {
    type: 'button', 'aria-pressed': `${state === name}`, 'data-key': name, click: () => { state = state === name ? '' : name; draw(); },
  }, make('i', { class: `dot ${name}` }), `${nodes} ${name}`);
}

function draw() {
  const all = under('node/');
  const counts = all.reduce((sum, [, node]) => ({ ...sum, [node.state]: (sum[node.state] ?? 0) + 1 }), {});
  fill(filters, order.filter((name) => counts[name]).map((name) => filter(name, counts[name])));
  const places = new Map(part('plan') ? stages(part('plan')).map((one) => [one.node, one]) : []);
  const found = all.filter(([name, node]) => (!state || node.state === state) && (!wanted || `${name} ${node.site ?? ''}`.includes(wanted)))
    .sort(([a, x], [b, y]) => order.indexOf(x.state) - order.indexOf(y.state) || a.localeCompare(b, 'en', { numeric: true }));
  const rows = found.slice(0, mostRows).map(([name, node], i) => {
    const place = places.get(name);
    return {
      tabindex: i ? -1 : 0, 'data-key': name,
      cells: [make('span', {}, make('i', { class: `dot ${node.state}` }), name), node.state, place ? `pipeline ${place.pipeline}, stage ${place.stage}` : '–',
        place ? layers(place.first, place.end) : '–', node.memory?.[1] ? `${bytes(node.memory[0])} of ${bytes(node.memory[1])}` : '–',
        node.speed ? short(node.speed) : '–', node.step ?? '–', node.stepSeconds ? seconds(node.stepSeconds) : '–', node.site ?? '', node.reason ?? ''],
    };
  });
  const more = found.length - rows.length;
  fill(list, rows.length ? table([['node'], ['state'], ['place'], ['layers'], ['peak memory'], ['speed', true], ['step', true], ['step time', true], ['site'], ['because']], rows)
    : make('p', { class: 'note' }, 'No node is like that.'), more > 0 ? make('p', { class: 'note' }, `and ${more} more: search, or choose a state`) : '');
}

listen(['node/', 'plan'], draw);
arrows(list, 'tbody tr');
