-- verb: flow_done
-- purpose: Strike delivered entries off the outbox, and put back those that could not be delivered.
-- section: Protocol, section 7
-- flags: allow-oom
-- include: now, number, row, flows, limits, rota, bell
-- flows: outbox
-- keys: meta hash; pending zset; active zset; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; outbox zset; outbox:entries hash; wake list
-- argv: client tag; number count; till ms; delay_ms ms; done count; entry text
-- reply: how many were as they were taken
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n) an entry
-- bound: 256 entries
-- moves:
local till, delay, done = tonumber(ARGV[3]), whole(ARGV[4], 0, 86400000), whole(ARGV[5], 0, 256)
if not (till and delay and done) or #ARGV - 5 > 256 then --!guard argv
  return redis.error_reply('EMQKIND flow_done: its till, delay_ms or entries are out of range')
end
local count = 0
for i = 6, #ARGV do
  -- Somebody else has taken it since, or there is news under its name.
  if tonumber(call('ZSCORE', OUTBOX, ARGV[i])) == till then --!guard as-taken
    count = count + 1
    if i - 5 <= done then
      strike(ARGV[i])
    else
      watch(OUTBOX, NOW + delay)
      call('ZADD', OUTBOX, taken_at(NOW + delay), ARGV[i]) --!write put-back
    end
  end
end
bell()
return count
