"""The style sheet of the report page: light and dark mode, narrow and wide screens, print."""

STYLE = """
:root{--ground:#f7f7f5;--card:#fff;--ink:#1d2129;--soft:#5d6673;--line:#e2e3e0;--real:#9fb3c8;--synthetic:#d9480f;
--good:#2b8a3e;--fair:#b07d00;--bad:#c92a2a;--pos:#1c5d99;--neg:#c2410c}
@media (prefers-color-scheme:dark){:root{--ground:#14171c;--card:#1d2229;--ink:#e8eaed;--soft:#a3adba;--line:#323942;
--real:#51677f;--synthetic:#ff922b;--good:#69db7c;--fair:#ffd43b;--bad:#ff8787;--pos:#74b3ee;--neg:#ff922b}}
*{box-sizing:border-box}
.arf{background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
margin:0;padding:24px 16px 48px;-webkit-text-size-adjust:100%}
.arf main{max-width:1080px;margin:0 auto}
.arf h1{font-size:26px;line-height:1.2;margin:0 0 4px}.arf h2{font-size:20px;margin:40px 0 4px}
.arf h3{font-size:15px;margin:0 0 8px;overflow-wrap:anywhere}
.arf p{margin:4px 0 12px;max-width:75ch}.arf .soft{color:var(--soft)}
.arf .grid{display:grid;gap:14px;grid-template-columns:repeat(auto-fill,minmax(min(100%,310px),1fr))}
.arf .halves{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));margin-top:18px}
.arf .card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;min-width:0}
.arf .good-edge{border-top:4px solid var(--good)}.arf .fair-edge{border-top:4px solid var(--fair)}
.arf .bad-edge{border-top:4px solid var(--bad)}.arf .gate{margin-top:18px}
.arf .gauge{margin:4px 0 14px}.arf .zones{position:relative;height:10px;margin:6px 0 4px}
.arf .zones i{position:absolute;top:0;height:10px;opacity:.35}.arf .zones i:first-child{border-radius:5px 0 0 5px}
.arf .zones i.bad{border-radius:0 5px 5px 0}.arf .zones .good{background:var(--good)}
.arf .zones .fair{background:var(--fair)}.arf .zones .bad{background:var(--bad)}
.arf .zones b{position:absolute;top:-4px;width:4px;height:18px;margin-left:-2px;border-radius:2px;background:var(--ink)}
.arf .peak{display:block;color:var(--soft);font-size:11px;line-height:1.4;border-bottom:1px dashed var(--line)}
.arf .word{font-size:19px;font-weight:650;line-height:1.3;margin:2px 0 8px}
.arf .good{color:var(--good)}.arf .fair{color:var(--fair)}.arf .bad{color:var(--bad)}
.arf ul{margin:0;padding-left:18px}.arf li{margin:3px 0;overflow-wrap:anywhere}
.arf .tiles{display:grid;gap:10px;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));margin:14px 0}
.arf .tile b{display:block;font-size:23px;font-variant-numeric:tabular-nums}
.arf .tile span{color:var(--soft);font-size:13px}
.arf .figures{color:var(--soft);font-size:13px;font-variant-numeric:tabular-nums;margin:8px 0 0}
.arf svg{display:block;width:100%}.arf svg.curve{height:96px}
.arf .curve .real{fill:var(--real);stroke:none}
.arf .curve .synthetic{fill:none;stroke:var(--synthetic);stroke-width:1.6;vector-effect:non-scaling-stroke}
.arf .ends{display:flex;justify-content:space-between;color:var(--soft);font-size:12px}
.arf .level,.arf .bar{display:grid;grid-template-columns:minmax(0,38%) 1fr 50px;gap:8px;align-items:center;
font-size:13px;margin:2px 0}
.arf .bar{grid-template-columns:minmax(90px,24%) 1fr 50px}
.arf .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.arf .value{text-align:right;color:var(--soft);font-size:11px;line-height:1.15;font-variant-numeric:tabular-nums}
.arf .pair span{display:block;height:8px;border-radius:2px;min-width:1px}
.arf .pair .real{background:var(--real);margin-bottom:2px}.arf .pair .synthetic{background:var(--synthetic)}
.arf .track{background:var(--line);border-radius:3px;height:10px}
.arf .fill{display:block;background:var(--synthetic);height:10px;border-radius:3px}
.arf .key i{display:inline-block;width:12px;height:12px;border-radius:3px;margin:0 4px 0 12px;vertical-align:-1px}
.arf .heats{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr))}
.arf figure{margin:0}.arf figcaption{font-size:13px;font-weight:600;margin-bottom:6px;text-align:right}
.arf .heat text{fill:var(--soft);font-family:inherit}
.arf .heat .pos{fill:var(--pos)}.arf .heat .neg{fill:var(--neg)}.arf .heat .ground{fill:var(--ground)}
.arf .whisker{display:grid;grid-template-columns:minmax(0,34%) 1fr 150px;gap:10px;align-items:center;font-size:13px;
margin:6px 0}
.arf .whisker svg{height:18px;overflow:visible}.arf .whisker line{vector-effect:non-scaling-stroke}
.arf .whisker .mark{stroke:var(--soft);stroke-dasharray:2 3;stroke-width:1}
.arf .whisker .span{stroke:var(--real);stroke-width:7;stroke-linecap:round}
.arf .whisker .dot{stroke:var(--synthetic);stroke-width:3}
.arf .whisker .value{font-size:12px;white-space:nowrap}
.arf .whisker.scale .ends{position:relative}.arf .whisker.scale .ends span:nth-child(2){position:absolute;
transform:translateX(-50%)}
.arf .scroll{overflow-x:auto}
.arf table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;width:100%}
.arf th,.arf td{text-align:right;padding:4px 8px;border-bottom:1px solid var(--line);white-space:nowrap;
vertical-align:top}
.arf th{white-space:normal;vertical-align:bottom;min-width:8ch}.arf .facts td{white-space:normal}
.arf .facts td:last-child{min-width:12ch}
.arf .facts td bdi,.arf .told td bdi{max-width:none;overflow-wrap:anywhere;white-space:normal}
.arf .attacks td .soft{font-size:12px}
.arf .attacks td:first-child,.arf .told td:first-child{white-space:normal;min-width:24ch;overflow-wrap:anywhere}
.arf th:first-child,.arf td:first-child{text-align:left}.arf th{color:var(--soft);font-weight:600}
.arf td bdi{display:inline-block;max-width:44ch;overflow:hidden;text-overflow:ellipsis;vertical-align:bottom}
.arf details{margin:12px 0}.arf summary{cursor:pointer;color:var(--soft)}
@media (max-width:560px){.arf{padding:16px 12px 32px}.arf h1{font-size:22px}
.arf .whisker{grid-template-columns:minmax(0,1fr) 150px}.arf .whisker svg,.arf .whisker .ends{grid-column:1/-1;order:3}}
@media print{:root{--ground:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#ccc;--real:#9fb3c8;--synthetic:#d9480f;
--good:#2b8a3e;--fair:#8a6100;--bad:#c92a2a;--pos:#1c5d99;--neg:#c2410c}
.arf{padding:0;font-size:11px;print-color-adjust:exact;-webkit-print-color-adjust:exact}
.arf .card,.arf figure,.arf p{break-inside:avoid}.arf .scroll{overflow:visible}
.arf table{font-size:10px}.arf th,.arf td{padding:3px 5px}.arf .attacks td .soft{font-size:9px}
.arf .attacks td:first-child,.arf .told td:first-child{min-width:0}.arf .whisker{grid-template-columns:34% 1fr 130px}
.arf h2,.arf h2+p,.arf .key{break-after:avoid}
.arf .grid{grid-template-columns:repeat(3,1fr)}.arf .halves{grid-template-columns:1fr 1fr}
.arf .heats{grid-template-columns:repeat(3,1fr)}.arf .tiles{grid-template-columns:repeat(6,1fr)}}
"""
