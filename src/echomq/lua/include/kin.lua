-- purpose: parents and children (section 7): what an ending tells those above and below it.
-- defines: LINK, open_children, begin, consider, receive; sets ended
-- How a parent names a child (`<id> <policy> <queue>`), and a child its parent (`<id> <queue> <name>`).
local LINK = { child = '^(%S+) (%a) (.*)$', parent = '^(%S+) (%S*) (.*)$' }
local MOST_CASCADE = 8
local cascade = 0 -- how many parents up this call is
local function open_children(id)
  local key = row_key(id)
  return call('HLEN', key .. ':children') - call('HLEN', key .. ':results')
end
-- A job that was held, or a parent, takes its place in the machine.
local function begin(id, row, due_ms)
  local due = tonumber(due_ms or call('HGET', row_key(id), 'due_ms')) or 0
  if due > 0 then call('HDEL', row_key(id), 'due_ms') end --!write begin-forget
  emit('ready', id)
  if due > NOW then --!guard begin-due
    watch(P .. 'schedule', due)
    place(id, row, 'schedule', due)
    return 'schedule'
  end
  place(id, row, 'pending', -row.priority)
  return 'pending'
end
-- What is known of a parent of many children that end in one call: that it waits, and for how many. Forgotten when it is
-- looked at, as it is when anything else is done with it.
local known_parents = {}
-- Looks at a waiting parent: is it over, may it run? Answers where it is then.
local function consider(id)
  known_parents[id] = nil --!write forget-parent
  local f = call('HMGET', row_key(id), 'hold', 'broken', 'early', 'seen')
  if f[1] then return 'waiting' end --!guard held
  if f[2] then --!guard broken
    bury(id, read(id), f[2])
    return 'dead'
  end
  local early = tonumber(f[3]) or 0
  -- A failure lets it run early once, not each time that it waits again.
  local fresh = early > (tonumber(f[4]) or 0) --!guard early-once
  if not fresh and open_children(id) > 0 then return 'waiting' end --!guard open
  if fresh then call('HSET', row_key(id), 'seen', early) end --!write seen
  return begin(id, read(id))
end
-- A child of that name has ended: the parent is settled by its policy, once.
local function receive(id, name, child, text)
  local key = row_key(id)
  local state = call('HGET', key, 'state')
  if not state then return 'gone' end --!guard parent-gone
  local known, policy = string.match(call('HGET', key .. ':children', name) or '', LINK.child)
  if known ~= child then return 'gone' end --!guard stranger
  local good = string.sub(text, 1, 10) == 'completed '
  if call('HSETNX', key .. ':results', name, text) == 0 then --!guard told
    -- A failure may yet be made good, by a child that was redriven; that is no news to a parent that has gone on.
    local had = string.match(call('HGET', key .. ':results', name), '^%S+')
    if not good or had == 'completed' or had == 'detached' then return 'again' end --!guard upgrade
    call('HSET', key .. ':results', name, text) --!write upgrade
    return 'ok'
  end
  -- What a death of the parent's did to a child is no failure in the parent's next life: the child comes along.
  if state == 'waiting' and string.match(text, '^dead %S+ %S+ ([^\n]*)') == 'parent dead: ' .. id then --!guard last-life
    call('HSET', key, 'hold', 'revive') --!write last-life
    owe(NOW, 'revive:' .. id, 'revive', '', id, '0') --!write last-life-owed
    return 'ok'
  end
  if not good and policy == 'f' then --!guard fail-parent
    local kind, reason = string.match(text, '^(%S+) %S+ %S+ ([^\n]*)')
    reason = string.sub(reason, 1, 512) --!bound reason
    call('HSETNX', key, 'broken', 'child ' .. name .. ' (' .. child .. ') ' .. kind .. (reason == '' and '' or ': ' .. reason)) --!write broken
  elseif not good and policy == 'r' then --!guard run-parent
    call('HINCRBY', key, 'early', 1) --!write early
  end
  if state == 'waiting' then consider(id) end --!guard receive-waiting
  return 'ok'
end
-- The same for a child of this queue that has completed, as nearly all do: the parent is looked at once a call, and again
-- when none of its children is left. Answers whether that was all.
local function receive_good(id, name, child, text)
  local parent = known_parents[id]
  if not parent then
    local key = row_key(id)
    parent = { children = key .. ':children', results = key .. ':results', waits = call('HGET', key, 'state') == 'waiting' }
    if not parent.waits then return false end --!guard good-waiting
    parent.open = open_children(id)
    known_parents[id] = parent
  end
  if string.match(call('HGET', parent.children, name) or '', '^%S+') ~= child then return false end --!guard good-stranger
  if call('HSETNX', parent.results, name, text) == 0 then return false end --!guard good-told
  parent.open = parent.open - 1 --!write good-open
  if parent.open <= 0 then consider(id) end --!guard good-last
  return true
end
function ended(id, row, kind, reason, body)
  if row.children and open_children(id) > 0 then --!guard sweep
    owe(NOW, 'sweep:' .. id, 'sweep', '', id, '0', kind == 'dead' and 'dead' or 'ended')
  end
  if not row.parent then return end
  local parent, queue, name = string.match(row.parent, LINK.parent)
  if not parent then return end
  local text = outcome(kind, row.attempts or '0', reason, body)
  if queue == '' and cascade < MOST_CASCADE then --!bound cascade
    cascade = cascade + 1
    -- Whatever is wrong with the parent does not keep the child from ending.
    local fine, told = kind == 'completed', false
    if fine then fine, told = pcall(receive_good, parent, name, id, text) end
    if not told then fine = pcall(receive, parent, name, id, text) end
    cascade = cascade - 1
    if fine then return end --!guard tell-later
  end
  owe(NOW, 'tell:' .. id, 'tell', queue, parent, id, name, text)
end
