-- purpose: rule 10. Ready work implies a wake token: every writing script ends with `bell`.
-- defines: made_ready, head_before, bell, watch_head, WAKE
local WAKE = P .. 'wake'
local MOST_TOKENS = 64
local made_ready = 0
local soonest, head_before
-- Called before an entry due at `due` joins the schedule: parked workers must hear of a nearer moment.
local function watch_head(due)
  if not soonest then
    local head = call('ZRANGE', P .. 'schedule', 0, 0, 'WITHSCORES')
    head_before = tonumber(head[2]) or math.huge
    soonest = due
  elseif due < soonest then
    soonest = due
  end
end
local function bell()
  if PAUSED then return end --!guard bell-paused
  local wanted = made_ready
  if soonest and soonest < head_before then wanted = wanted + 1 end --!guard bell-head
  if wanted == 0 then return end
  local room = MOST_TOKENS - call('LLEN', WAKE) --!bound wake
  if wanted > room then wanted = room end
  if wanted <= 0 then return end
  local tokens = {}
  for i = 1, wanted do
    tokens[i] = '1'
  end
  call('LPUSH', WAKE, unpack(tokens)) --!write wake
end
