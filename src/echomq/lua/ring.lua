-- verb: ring
-- purpose: The bell by itself, for a worker that left a park in which it may have been served.
-- section: Protocol, section 4, rule 10
-- flags: allow-oom
-- include: now, row, limits, rota, bell
-- keys: meta hash; pending zset; wake list; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash
-- argv: client tag; number count
-- reply: 1 if there is ready work, else 0
-- verdicts:
-- refusals: EMQVERSION
-- events:
-- cost: O(1)
-- bound: 1 token
-- moves:
if call('EXISTS', ROTA and RING or P .. 'pending') == 0 then return 0 end
made_ready = 1
bell()
return 1
