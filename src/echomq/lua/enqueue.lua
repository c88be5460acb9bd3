-- verb: enqueue
-- purpose: Admit jobs: check, reserve the dedup key, write the row, place it in pending or schedule.
-- section: Protocol, section 5
-- flags:
-- include: now, number, once, row, items, emit, bell
-- keys: meta hash; pending zset; schedule zset; job:<id> hash; dedup:<key> string; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; priority integer; delay_ms ms; at_ms ms; dedup text; dedup_window_ms ms; fields count; then name and value of each field
-- reply: a verdict an item
-- verdicts: admitted; duplicate; collision
-- refusals: EMQKIND; EMQSTATE; EMQVERSION; EMQSTALE
-- events: enqueued
-- cost: O(log n) an item
-- bound: 256 items
-- moves: nothing -> pending; nothing -> schedule
local kept, refused = recall()
if kept or refused then return kept or refused end

local MOST_PRIORITY = 2047
local LONGEST = 3162240000000 -- a century in ms
local function alive(id)
  local state = call('HGET', row_key(id), 'state')
  return state and state ~= 'dead' and state ~= 'done'
end

-- The item that is being written: should the server refuse it a place or a row, its dedup key must not stay. (A place
-- without a row is dropped by whoever comes upon it.)
local begun
local function unmake(at)
  pcall(call, 'DEL', P .. 'dedup:' .. ARGV[at + 4]) --!write unmake
end

local function admit(at, fields)
  local id, dedup = ARGV[at], ARGV[at + 4]
  begun = nil
  if meta[3] then return 'EMQSTATE closing' end --!guard closing
  local priority = whole(ARGV[at + 1], -MOST_PRIORITY, MOST_PRIORITY)
  if not priority then return 'EMQKIND priority ' .. ARGV[at + 1] end --!guard priority
  local delay = whole(ARGV[at + 2], 0, LONGEST)
  if not delay then return 'EMQKIND delay_ms ' .. ARGV[at + 2] end --!guard delay
  local due = whole(ARGV[at + 3], 0, FAR)
  if not due then return 'EMQKIND at_ms ' .. ARGV[at + 3] end --!guard at
  local window = whole(ARGV[at + 5], 0, LONGEST)
  if not window then return 'EMQKIND dedup_window_ms ' .. ARGV[at + 5] end --!guard window
  local row = row_key(id)
  local by = call('HGET', row, 'by')
  if by then --!guard exists
    -- Written by this client: the resend of a call whose memory is gone. By another: two clients minted the same id.
    return by == CLIENT and 'admitted' or 'collision'
  end
  if dedup ~= '' then
    local key = P .. 'dedup:' .. dedup
    local holder = call('GET', key)
    if holder and holder ~= id and (call('PTTL', key) > 0 or alive(holder)) then return 'duplicate ' .. holder end --!guard dedup
    if window > 0 then
      call('SET', key, id, 'PX', window) --!write dedup-window
    else
      call('SET', key, id) --!write dedup
    end
  end
  if not meta[1] then
    call('HSET', META, 'protocol', VERSION) --!write meta
    meta[1] = VERSION
  end
  begun = at
  if delay > 0 then due = NOW + delay end
  local state, score = 'pending', -priority
  if due > NOW then
    state, score = 'schedule', due
    watch_head(due)
  else
    made_ready = made_ready + 1
  end
  call('ZADD', SETS[state], score, id) --!write enter
  call('HSET', row, 'state', state, 'since', NOW, 'by', CLIENT, unpack(ARGV, at + 7, at + 6 + 2 * fields)) --!write row
  emit('enqueued', id)
  return 'admitted'
end

-- A malformed call is refused whole, before its first item is admitted.
local items, at = {}, 3
while at <= #ARGV do
  local fields = whole(ARGV[at + 6], 0, 64)
  if not fields or at + 6 + 2 * fields > #ARGV or #items == 2 * MOST_ITEMS then --!guard malformed
    return redis.error_reply('EMQKIND malformed call: item ' .. #items / 2 + 1)
  end
  items[#items + 1] = at
  items[#items + 1] = fields
  at = at + 7 + 2 * fields
end
local verdicts = {}
for i = 1, #items, 2 do
  local fine, verdict = pcall(admit, items[i], items[i + 1])
  if not fine then
    if begun == items[i] then unmake(begun) end --!guard unmake
    tally('torn')
    if type(verdict) == 'table' then verdict = verdict.err end
    verdict = 'EMQTORN ' .. tostring(verdict)
  end
  verdicts[#verdicts + 1] = verdict
end
bell()
flush_tally()
remember(verdicts)
return verdicts
