'use strict';
// Plots of the report page; DATA = {rows, floor, links, models} comes from report.py.
const PALETTE = ['#8a94a0', '#3b6fb6', '#7fc8b2', '#2a9d8f', '#0b5f5f', '#d9480f'];
const STAGE_NAMES = {prefill: 'prefill', encode: 'encode', wire: 'wire', decode: 'decode',
                     first_token: 'first token', rest: 'other tokens'};
const STAGE_COLORS = {prefill: '#b8c0c9', encode: '#e9a23b', wire: '#c8553d', decode: '#7a5ea8',
                      first_token: '#3b6fb6', rest: '#a9c4e4'};
const FONT = {family: 'system-ui, "DejaVu Sans", sans-serif', size: 13, color: '#1c2733'};
const CONFIG = {displayModeBar: false, responsive: true};

const labels = [...new Set(DATA.rows.map(row => row.label))];
const colorOf = label => PALETTE[labels.indexOf(label) % PALETTE.length];
const several = DATA.models.length > 1;
const seconds = value => value >= 10 ? value.toFixed(1) : value.toPrecision(2);

function layout(extra) {
  return Object.assign({font: FONT, margin: {l: 64, r: 12, t: 12, b: 48}, paper_bgcolor: '#fff',
                        plot_bgcolor: '#fff', legend: {orientation: 'h', y: 1.12, x: 0},
                        hoverlabel: {font: FONT}}, extra);
}

// One bar group per link (and model), one colour per profile.
function byLink(field, links) {
  return labels.map(label => {
    const rows = DATA.models.flatMap(model => links.flatMap(link => DATA.rows.filter(
        row => row.label === label && row.link === link && row.model === model)));
    return {rows, label, x: several ? [rows.map(row => row.model), rows.map(row => row.link)]
                                    : rows.map(row => row.link), y: rows.map(field)};
  });
}

function plotJct() {
  const traces = byLink(row => row.jct_ms / 1e3, DATA.links).map(series => ({
    type: 'bar', name: series.label, x: series.x, y: series.y, marker: {color: colorOf(series.label)},
    text: series.y.map(seconds), textposition: 'outside', cliponaxis: false, textfont: {size: 11},
    hovertemplate: '%{y:.2f} s<extra>' + series.label + '</extra>'}));
  const shapes = several ? [] : [DATA.floor[DATA.models[0]].jct_ms / 1e3].map(floor => (
      {type: 'line', xref: 'paper', x0: 0, x1: 1, y0: floor, y1: floor,
       line: {dash: 'dot', width: 1.5, color: '#1c2733'}}));
  const all = DATA.rows.map(row => Math.log10(row.jct_ms / 1e3));
  Plotly.newPlot('jct', traces, layout({
    barmode: 'group', shapes, bargap: .18,
    yaxis: {type: 'log', title: {text: 'seconds'}, gridcolor: '#e8ebef',
            tickvals: [.1, .2, .5, 1, 2, 5, 10, 20, 50, 100, 200],
            range: [Math.min(...all) - .35, Math.max(...all) + .15]},
    xaxis: {type: several ? 'multicategory' : 'category'}}), CONFIG);
}

// Cost against bandwidth. A cost of nothing or less is noise, for which this axis has no place.
function plotCost() {
  const traces = labels.filter(label => label !== 'none').flatMap(
      label => DATA.models.map((model, number) => {
        const rows = DATA.rows.filter(row => row.label === label && row.model === model && row.cost > 0)
            .sort((a, b) => a.link_mbps - b.link_mbps);
        const name = several ? `${model}, ${label}` : label;
        return {
          type: 'scatter', mode: 'lines+markers+text', name, x: rows.map(row => row.link_mbps),
          y: rows.map(row => row.cost), marker: {size: 9, symbol: number ? 'square' : 'circle'},
          line: {color: colorOf(label), width: 2.5, dash: number ? 'dash' : 'solid'},
          text: rows.map(row => row.link_mbps <= 20 ? row.cost.toPrecision(2) : ''),
          textposition: 'bottom center', textfont: {size: 11}, cliponaxis: false,
          hovertemplate: '%{y:.3f} of none at %{x} Mbit/s<extra>' + name + '</extra>'};
      }));
  const links = [...new Set(DATA.rows.filter(row => row.cost > 0).map(row => row.link_mbps))];
  Plotly.newPlot('cost', traces, layout({
    shapes: [{type: 'line', xref: 'paper', x0: 0, x1: 1, y0: 1, y1: 1,
              line: {dash: 'dot', width: 1.5, color: '#1c2733'}}],
    yaxis: {type: 'log', title: {text: 'cost / cost of none'}, gridcolor: '#e8ebef',
            tickvals: [.02, .05, .1, .2, .5, 1, 2, 5, 10]},
    xaxis: {type: 'log', title: {text: 'Mbit/s'}, gridcolor: '#e8ebef', tickvals: links}}), CONFIG);
}

// One small plot per model and link: stacked stages per profile, a diamond at the JCT.
function plotStages() {
  const home = document.getElementById('stages');
  let first = true;
  for (const model of DATA.models) {
    for (const link of DATA.links) {
      const rows = DATA.rows.filter(row => row.model === model && row.link === link);
      if (!rows.length) continue;
      const names = rows.map(row => row.label);
      const traces = Object.keys(STAGE_NAMES).map(stage => ({
        type: 'bar', orientation: 'h', name: STAGE_NAMES[stage], y: names,
        x: rows.map(row => row.stages_ms[stage] / 1e3), marker: {color: STAGE_COLORS[stage]},
        showlegend: first, hovertemplate: '%{x:.2f} s<extra>' + STAGE_NAMES[stage] + '</extra>'}));
      traces.push({type: 'scatter', mode: 'markers', name: 'whole answer', y: names,
                   x: rows.map(row => row.jct_ms / 1e3), showlegend: first,
                   marker: {symbol: 'diamond', size: 10, color: '#1c2733',
                            line: {width: 1.5, color: '#fff'}},
                   hovertemplate: '%{x:.2f} s<extra>whole answer</extra>'});
      const box = document.createElement('div');
      home.appendChild(box);
      Plotly.newPlot(box, traces, layout({
        height: first ? 264 : 216, barmode: 'stack', bargap: .3,
        margin: {l: 84, r: 16, t: first ? 76 : 30, b: 34},
        title: {text: (several ? model + ', ' : '') + link, font: {size: 14, weight: 600}, x: 0,
                xref: 'paper', xanchor: 'left', y: first ? .74 : .95, yanchor: 'top'},
        legend: {orientation: 'h', y: 1.55, x: 0, traceorder: 'normal'},
        xaxis: {gridcolor: '#e8ebef', ticksuffix: ' s', rangemode: 'tozero'},
        yaxis: {autorange: 'reversed', ticksuffix: '  '}}), CONFIG);
      first = false;
    }
  }
}

// Ratio against KL. Exact profiles have no place on a logarithmic axis: they sit on its lower edge.
function plotQuality() {
  const seen = new Map();
  for (const row of DATA.rows) seen.set(row.model + row.label, row);
  const rows = [...seen.values()];
  const lossy = rows.filter(row => row.kl > 0).map(row => row.kl);
  const edge = Math.min(1e-3, ...lossy) / 3;
  const symbols = ['circle', 'square'];
  const traces = labels.map(label => {
    const own = rows.filter(row => row.label === label);
    return {type: 'scatter', mode: 'markers+text', name: label, x: own.map(row => row.compression_ratio),
            y: own.map(row => Math.max(row.kl, edge)), showlegend: false,
            textposition: label === 'lossless' ? 'middle right' : 'top center',
            text: own.map(row => (row.kl > 0 ? label : `  ${label} (exact)`)),
            marker: {size: 14, color: colorOf(label),
                     symbol: own.map(row => symbols[DATA.models.indexOf(row.model) % 2])},
            hovertext: own.map(row => `${row.model}, ${label}: ratio ` +
                `${row.compression_ratio.toFixed(2)}, KL ${row.kl.toFixed(5)}`), hoverinfo: 'text'};
  });
  const top = Math.max(0.03, ...lossy) * 2.2;
  Plotly.newPlot('quality', traces, layout({
    shapes: [{type: 'line', xref: 'paper', x0: 0, x1: 1, y0: .02, y1: .02,
              line: {dash: 'dot', width: 1.5, color: '#c8553d'}}],
    xaxis: {title: {text: 'compression ratio'}, gridcolor: '#e8ebef', rangemode: 'tozero'},
    yaxis: {type: 'log', title: {text: 'KL, nats'}, gridcolor: '#e8ebef',
            exponentformat: 'power', dtick: 1,
            range: [Math.log10(edge) - .12, Math.log10(top)]}}), CONFIG);
}

plotJct();
plotCost();
plotStages();
plotQuality();
